"""What models share: checks of their inputs, and the initialization of recurrent layers."""

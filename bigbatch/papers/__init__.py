"""The papers: every table and figure by one command, with the paper's numbers beside ours.

A folder is a paper with its card, a file in it a figure or a table, which offers

- `PAPER`, the numbers that the paper prints, by case;
- `runs(scale) -> Cases`, the tasks behind it: trainings, probes of a first step, filters;
- `draw(results) -> Drawing`, our table or chart beside the paper's, and which of its claims held.

`reproduction.reproduce` does what is not done yet, in a folder that several machines may share, and draws;
`plan.plan` says what it would cost; `catalog` lists papers and figures without importing torch.
"""

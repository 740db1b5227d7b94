"""What the layer-wise optimizers share: options, exclusion, shards, norms, and three implementations of a step.

A step collects the tensors that have gradients, computes each layer's ratio and updates the weights. The ratio is a
Python number, so a step reads norms back from the device once per group. The tensor arithmetic is one of:

- `fused`, on the CPU: torch's fused kernels, tensor by tensor, because a norm and the update that follows it share
  the cache. The default on the CPU.
- `foreach`: torch's multi-tensor operations. The default on other devices.
- `single_tensor`: tensor by tensor, for what the fused kernels do not support (Nesterov, unusual memory layouts).

The choice changes results by rounding only. Of sharded parameters (DTensor, FSDP2) each rank updates its own shard by
the ratio of the full tensor: the squared norms of all shards are summed over the ranks in one all-reduce.
"""

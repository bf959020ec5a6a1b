"""The sampler: jitted prefill and decode, and remote endpoints."""

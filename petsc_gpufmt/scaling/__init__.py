"""A model of MatMult on many GPUs: what each rank computes and exchanges, and how long that takes."""

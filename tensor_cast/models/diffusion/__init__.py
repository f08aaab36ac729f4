"""Diffusion pipelines: a diffusers directory's configs -> ``Pipeline`` -> graphs of denoiser, text encoder and VAE."""

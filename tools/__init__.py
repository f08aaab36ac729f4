"""The measuring side: needs a checkout, and for most of it an accelerator."""

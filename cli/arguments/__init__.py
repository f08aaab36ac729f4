"""Flags that several commands share, one group a module, with what the core makes of them."""

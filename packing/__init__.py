"""How operands are laid out before a kernel reads them."""

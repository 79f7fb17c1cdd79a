"""Text to tree: the lexer, the parser, the macros, and the nodes everything else works on."""

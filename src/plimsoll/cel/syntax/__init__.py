"""Syntax: lexer, parser, macros and the nodes of the tree."""

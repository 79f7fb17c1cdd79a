"""Kinds stored for others: general rules, and the defaults and rules that their controllers rely on."""

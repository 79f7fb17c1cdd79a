"""Kinds without a strategy of their own: a generic strategy, plus defaults and rules that their
controllers rely on.
"""

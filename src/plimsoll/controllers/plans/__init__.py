"""What to do, decided from objects alone: no calls, no clock, no chance.

One module for each concern; each takes what the caches hold and gives back a `Plan`.
"""

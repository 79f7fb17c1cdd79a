"""Static analysis: types, overloads, invalid literals and the worst-case cost."""

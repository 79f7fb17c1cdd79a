"""Questions about clusters in `../shared/cases`, with the answers that are right."""

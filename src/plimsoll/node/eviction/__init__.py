"""What a node does when it runs short: `thresholds` say when, `measures` look, `watch` decides and acts."""

"""What is deployed: the chart, the manifests made of it, and the rights they give."""

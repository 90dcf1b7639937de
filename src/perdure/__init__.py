"""perdure: durable workflows that survive crashes, restarts and deploys."""

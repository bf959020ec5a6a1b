"""What the policy is told, and how its reply is read."""

package demoformat

// Name is the agent's name in the API.
const Name = "demo"

// Command is the runner subcommand that runs the demo agent.
const Command = "demo-agent"

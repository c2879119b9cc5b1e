package demoformat

// Name is the agent's name in the API.
const Name = "demo"

// Command is the word that makes overwinter-runner run Main.
const Command = "demo-agent"

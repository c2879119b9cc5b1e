package demoformat

// The names of tools.
const (
	ToolShell = "shell"
	ToolWrite = "write"
)

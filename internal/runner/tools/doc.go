// Package tools is the MCP server that an agent starts in its sandbox, over stdio. It offers the
// tools of package agenttool and passes each call to the runner, which records it and waits for the
// worker's answer. It makes no decisions.
package tools

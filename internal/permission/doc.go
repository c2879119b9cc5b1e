// Package permission decides whether tool calls run, are asked about, or are refused. The policies
// are the same for every agent; adapters translate them for their agents.
package permission

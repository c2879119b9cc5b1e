// Package permission decides about the calls of tools: they run, people are asked, or they do not run. The words are the
// same for every agent; adapters hand them to their agents.
package permission

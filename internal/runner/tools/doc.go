// Package tools is the server of the Model Context Protocol that an agent starts in its sandbox, over stdio. It offers the tools of
// package agenttool and passes each call to the runner, which records it and waits for the worker's answer. It decides nothing.
package tools

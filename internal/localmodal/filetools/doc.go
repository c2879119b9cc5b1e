// Package filetools is the program that serves the SDK's Sandbox.Filesystem calls. The SDK executes
// /__modal/.bin/modal-sandbox-fs-tools with one JSON argument such as
// {"ReadFile":{"path":"/etc/hosts"}}. Content is passed through the standard streams; a failure is
// reported as one JSON object on stderr and exit code 1.
//
// It runs inside the sandbox as a separate process, so that paths are resolved there and a snapshot
// can freeze it.
package filetools

// Package filetools is the program that serves the SDK's Sandbox.Filesystem calls. The SDK executes
// /__modal/.bin/modal-sandbox-fs-tools with one JSON argument such as
// {"ReadFile":{"path":"/etc/hosts"}}. Content goes through the standard streams; a failure is one
// JSON object on stderr with an exit code of 1.
//
// It runs inside the sandbox as a separate process, so that paths mean what they mean there and a
// snapshot can stop it.
package filetools

// Package runlines reads the output of opencode run --format json: parts when they are complete,
// and errors. Sessions of the bridge have the server's events instead; these lines are supported
// for recordings of other clients. Package opencode turns them into blocks.
package runlines

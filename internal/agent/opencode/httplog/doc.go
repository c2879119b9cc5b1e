// Package httplog reads recordings of the responses of OpenCode's server to requests for its
// sessions and their messages: lines of {"path":…,"response":…}. Sessions of the bridge have
// exports instead. Package opencode turns the result into blocks.
package httplog

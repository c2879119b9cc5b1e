// Package httplog reads recordings of what OpenCode's server responded when it was asked for its sessions and
// their messages: lines of {"path":…,"response":…}. Sessions of the bridge have exports instead. Package
// opencode makes blocks of what it returns.
package httplog

// Package runlines reads the lines that opencode run --format json prints: a part when it is whole, or an
// error. Sessions of the bridge have the server's events instead; these lines are read so that what others
// have recorded can be. Package opencode makes blocks of them.
package runlines

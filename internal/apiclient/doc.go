// Package apiclient is a client of overwinter's HTTP API for programs in Go; the command line is
// one. Every call may be repeated without harm, since creates and prompts carry ids of the client,
// so calls are retried if the server was not reached or asks for a retry. Follow reads a session's
// events and continues after the last one if the connection breaks.
package apiclient

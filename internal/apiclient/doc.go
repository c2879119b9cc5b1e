// Package apiclient is a client of overwinter's HTTP API for programs in Go; the
// command line is one. Every call may be repeated without harm, since creates and
// prompts carry ids of the client, so calls are tried again where the server was
// not reached or asks to come again. Follow reads a session's events and goes on
// behind the last one when the connection breaks.
package apiclient

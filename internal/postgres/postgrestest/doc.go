// Package postgrestest gives each test its own migrated database on a real Postgres server that
// runs as long as the test process.
//
// The first test that needs the server starts it from the installed binaries. The server's
// directory is in memory if enough is available, else under the system's temporary directory. It
// listens only on a Unix socket in that directory. If the tests run as root, the server runs as the
// user postgres or nobody, since Postgres refuses root.
//
// A small shell process is the server's parent: it holds the read end of a pipe whose write end
// only the test process has. When the test process ends, even by kill -9, the pipe closes, and the
// shell stops the server and removes its directory. Durability is off, since no data outlives its
// test.
package postgrestest

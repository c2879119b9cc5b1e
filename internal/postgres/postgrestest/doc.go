// Package postgrestest gives each test its own migrated database on a real Postgres
// server that lives as long as the test process.
//
// The server is started with the first test that asks for one, from the binaries that are
// installed, in its own directory in memory if there is enough, else under the system's temporary directory, and listens on a unix
// socket there and on nothing else. As root it runs as the user postgres or nobody, since Postgres
// refuses root.
//
// A small shell process is the server's parent: it holds the read end of a pipe whose write end
// only the test process has. However the test process ends, kill -9 included, the pipe closes, and
// the shell stops the server and removes its directory. Durability is off: nothing here outlives
// its test.
package postgrestest

// Package devstack is the supervisor of `overwinter dev`: it runs the whole system on one machine,
// as child processes with one data directory.
//
//	             ┌─▶ Postgres ─▶ database ─▶ migrations ─┐     ┌─▶ worker ─┐
//	lock, ports ─┼─▶ Temporal and its UI ────────────────┼─▶───┤           ├─▶ banner ─▶ … ─▶ stop
//	             └─▶ local Modal ────────────────────────┘     └─▶ api ────┘
//
// It stops the children in the order api, worker, local Modal, Temporal, Postgres. Package child
// runs, monitors and ends a single child.
//
// # The data directory
//
//	lock               held while a dev runs; its process id
//	run/NAME.json      which process a child is
//	logs/NAME.log      a child's output; NAME.log.1 … .3 are those of earlier runs
//	secret.key         encrypts secrets in the database
//	postgres/          the database, owned by the user that Postgres runs as
//	postgres.password  of its superuser, as which only the supervisor connects
//	postgres-app.password  of the role of worker, api and migrations, which owns the database
//	database-url       where the database is, for psql, as that role
//	ports.json         ports that no flag sets, for the next run
//	temporal/, modal/  state of Temporal and of the local Modal
//
// # Invariants
//
//   - One dev per data directory: the lock is held from before anything is read until after the
//     last child has ended. The kernel releases it when the process ends.
//   - Before anything is started, processes that an earlier dev left running are ended.
//   - Missing requirements (programs, ports, permissions) are detected before the first child is
//     started, and reported in one sentence.
//   - Everything listens on loopback, except the API if --api-address differs. Postgres requires a
//     password, so that a sandbox that shares the machine's network cannot connect. Worker and api
//     connect through its socket in postgres/, unless the directory takes no sockets.
//   - Files with secrets are readable only by their owner, whatever the mode of the directory. As
//     root, other users can traverse the directory, so that Postgres's user reaches its own.
//   - The local Modal, the parent of the sandboxes, gets none of the secrets.
//
// # When things fail
//
//	what                                    what happens
//	a port is taken                         an error that names port and flag; nothing is started
//	Postgres or Temporal is not installed   an error that says what to do; nothing is started
//	another dev uses the directory          an error that names its process
//	Postgres's version changed              an error that names both versions; nothing is touched
//	a child cannot start                    an error with its final output; the others are stopped
//	a child is killed or dies               started again after 200 ms, doubling up to 10 s; the others
//	                                        stay up and find it again by themselves
//	dev is killed                           the kernel ends the children; the next start ends what is left
//	Ctrl-C, then another                    ordered stop with deadlines, then all are killed at once
package devstack

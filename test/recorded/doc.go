// Package recorded has the logs of sessions that recordings of all agents lead to, for tests of what is made of logs.
package recorded

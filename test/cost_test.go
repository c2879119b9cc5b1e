package test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

// TestOperationsPerTurn counts the operations of the whole system for a turn of one word and for a
// turn of many words. It is the short form of make bench, because counts do not depend on the
// machine. Every prompt pays for a higher count, so a change that needs more operations raises the
// bound here and states the reason in its commit. A change that saves operations lowers the bound.
//
// Statements and round trips are those of the turn with the fewest, because background work, such
// as the relay's query every two seconds, only increases the counts. A round trip is one Sync, or
// one simple query, for which api or worker waits.
//
// The worker of the previous turn claims a turn of an attended session: its workflow receives only
// one signal for several turns.
func TestOperationsPerTurn(t *testing.T) {
	t.Parallel()
	t.Run("dispatched", func(t *testing.T) {
		t.Parallel()
		whatATurnCosts(t, []string{"OVERWINTER_ATTEND=0s"}, map[string]float64{
			"statements": 60, "round trips": 18, "history events": 13, "workflow tasks": 2.3, "activities": 1,
		})
	})
	t.Run("attended", func(t *testing.T) {
		t.Parallel()
		// An attendance that ends early, on a slow machine, adds part of the cost of a dispatch.
		whatATurnCosts(t, []string{"OVERWINTER_ATTEND=10s"}, map[string]float64{
			"statements": 54, "round trips": 15, "history events": 3.5, "workflow tasks": 0.9, "activities": 0.4,
		})
	})
}

// whatATurnCosts compares the cost of a turn with bounds: those that depend on how turns begin, and
// those that all turns share.
func whatATurnCosts(t *testing.T, env []string, bounds map[string]float64) {
	t.Helper()
	server := startPostgres(t)
	traffic := &traffic{}
	database := newProxy(t, func() (net.Conn, error) {
		conn, err := net.Dial("unix", server.socket)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, traffic: traffic}, nil
	})
	s := launch(t, env, stackDir(t), "--database-url", fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", server.user, database.address, server.database))
	temporal, err := client.Dial(client.Options{HostPort: s.engine, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	defer temporal.Close()

	id := s.create(t, object{"idleTimeout": "24h"})
	stream := s.follow(t, id)
	turn := func(name, content string) {
		s.prompt(t, id, name, content)
		stream.wait(t, 60*time.Second, "the end of "+name, func(e event) bool {
			return e.Type == "turn_end" && strings.Contains(string(e.Data), `"`+name+`"`)
		})
	}
	for i := range 3 { // after this, statements are prepared and the link is open
		turn(fmt.Sprintf("warm%d", i), "hello")
	}

	const turns = 15
	before, eventsBefore := readHistory(t, temporal, id), stream.last()
	cost := map[string]float64{}
	least := func(name string, value int64) {
		if have, ok := cost[name]; !ok || float64(value) < have {
			cost[name] = float64(value)
		}
	}
	for i := range turns {
		statements, trips := traffic.statements.Load(), traffic.roundTrips.Load()
		turn(fmt.Sprintf("turn%d", i), "hello")
		least("statements", traffic.statements.Load()-statements)
		least("round trips", traffic.roundTrips.Load()-trips)
	}
	cost["events"] = float64(stream.last()-eventsBefore) / turns
	after := readHistory(t, temporal, id)
	require.Equal(t, before.run, after.run, "the workflow continued as new: measure fewer turns")
	cost["history events"] = float64(after.events-before.events) / turns
	cost["workflow tasks"] = float64(after.tasks-before.tasks) / turns
	cost["activities"] = float64(after.activities-before.activities) / turns

	const words = 400
	statements, eventsBefore := traffic.statements.Load(), stream.last()
	turn("long", strings.TrimSpace(strings.Repeat("word ", words)))
	cost["statements per 100 words"] = float64(traffic.statements.Load()-statements-int64(cost["statements"])) / words * 100
	cost["events per 100 words"] = (float64(stream.last()-eventsBefore) - cost["events"]) / words * 100

	t.Logf("%v", cost)
	maps.Copy(bounds, map[string]float64{
		// One event for each step of the prompt and the turn, of the agent's block, and of the
		// queue.
		"events": 14,
		// Words that wait together are merged into one event, and events that wait together are one
		// commit.
		"statements per 100 words": 100,
		"events per 100 words":     15,
	})
	// Statements and round trips: submit, claim, attach, append and end, and what api and workflow
	// read. For the history, the mean of all turns is used, because a slow machine may add a task
	// occasionally.
	for name, most := range bounds {
		require.Contains(t, cost, name)
		require.LessOrEqual(t, cost[name], most, "%s of a turn; all: %v", name, cost)
	}
}

// historyLength has the counts of a workflow's history.
type historyLength struct {
	run                       string
	events, tasks, activities int
}

// readHistory returns the length of a history once it no longer grows: the last task of a turn ends
// after readers have its events.
func readHistory(t *testing.T, temporal client.Client, id string) historyLength {
	t.Helper()
	var last historyLength
	eventually(t, 60*time.Second, "the workflow rests", func() error {
		described, err := temporal.DescribeWorkflowExecution(t.Context(), id, "")
		if err != nil {
			return err
		}
		h := historyLength{run: described.GetWorkflowExecutionInfo().GetExecution().GetRunId()}
		all := temporal.GetWorkflowHistory(t.Context(), id, h.run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for all.HasNext() {
			e, err := all.Next()
			if err != nil {
				return err
			}
			h.events++
			switch e.GetEventType() {
			case enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
				h.tasks++
			case enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
				h.activities++
			}
		}
		busy := len(described.GetPendingActivities()) > 0 || described.GetPendingWorkflowTask() != nil
		settled := !busy && h == last
		last = h
		if !settled {
			return fmt.Errorf("%+v, busy: %t", h, busy)
		}
		return nil
	})
	return last
}

// traffic counts the messages that all clients of a Postgres server send.
type traffic struct{ statements, roundTrips atomic.Int64 }

// countedConn counts the messages of one client on their way to Postgres.
type countedConn struct {
	net.Conn
	traffic *traffic

	mu      sync.Mutex
	started bool   // the startup message, which has no type, has passed
	skip    int    // bytes of a message whose head has been read
	head    []byte // the head of a message that has arrived only in part
}

// Write reads the head of each message: a type of one byte, and a length that counts itself.
func (c *countedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	for rest := p; len(rest) > 0; {
		if c.skip > 0 {
			n := min(c.skip, len(rest))
			c.skip, rest = c.skip-n, rest[n:]
			continue
		}
		size := 5
		if !c.started {
			size = 4
		}
		n := min(size-len(c.head), len(rest))
		c.head, rest = append(c.head, rest[:n]...), rest[n:]
		if len(c.head) < size {
			break
		}
		c.skip = int(binary.BigEndian.Uint32(c.head[size-4:])) - 4
		if c.started {
			c.count(c.head[0])
		}
		c.started, c.head = true, c.head[:0]
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *countedConn) count(kind byte) {
	switch kind {
	case 'E': // Execute
		c.traffic.statements.Add(1)
	case 'S': // Sync
		c.traffic.roundTrips.Add(1)
	case 'Q': // Query
		c.traffic.statements.Add(1)
		c.traffic.roundTrips.Add(1)
	}
}

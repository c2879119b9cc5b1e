package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
)

// TestAcknowledgedSignalsOutliveKill kills the server while signals arrive, restarts it with the
// same file, and expects the workflow to have each acknowledged signal.
func TestAcknowledgedSignalsOutliveKill(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"normal", "full"} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			server := b.start(t, "--sync", sync)
			c := b.client(t, "default")
			work(t, c)
			run := startCounter(t, c, "survivor")

			const killAfter = 50
			half := make(chan struct{})
			acknowledged := make(chan []int, 1) // so that the goroutine ends without a receiver
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				var numbers []int
				for n := 0; ; n++ {
					// The SDK retries while no server runs, until it is stopped.
					if err := c.SignalWorkflow(ctx, run.GetID(), "", countSignal, n); err != nil {
						acknowledged <- numbers
						return
					}
					numbers = append(numbers, n)
					if len(numbers) == killAfter {
						close(half)
					}
				}
			}()
			select {
			case <-half:
			case numbers := <-acknowledged:
				require.FailNow(t, "signals are refused", "after %d", len(numbers))
			}
			server.kill(t)
			cancel()
			sent := <-acknowledged
			require.GreaterOrEqual(t, len(sent), killAfter)

			b.start(t, "--sync", sync)
			require.NoError(t, c.SignalWorkflow(t.Context(), run.GetID(), "", countSignal, -1))
			require.NoError(t, c.SignalWorkflow(t.Context(), run.GetID(), "", finishSignal, nil))
			var got []int
			require.NoError(t, run.Get(t.Context(), &got))
			require.Equal(t, sent, got[:len(sent)], "of %d acknowledged and %d handled", len(sent), len(got))
			require.Equal(t, -1, got[len(got)-1])
		})
	}
}

// TestDeletedDataLeavesFiles deletes the only workflow of an idle server, which writes too little to
// overwrite its WAL, and expects that no file contains the workflow's signal.
func TestDeletedDataLeavesFiles(t *testing.T) {
	t.Parallel()
	const planted = "a-planted-quetzal"
	b := setup(t)
	b.start(t)
	c := b.client(t, "default")
	run := startCounter(t, c, "deleted")
	found := func() (in []string) {
		for _, suffix := range []string{"", "-wal"} {
			data, err := os.ReadFile(b.dbFile + suffix)
			require.NoError(t, err)
			if bytes.Contains(data, []byte(planted)) {
				in = append(in, suffix)
			}
		}
		return in
	}
	eventually(t, func(ctx context.Context) error { // a checkpoint may come before the second file is read
		if err := c.SignalWorkflow(ctx, run.GetID(), "", "ignored", planted); err != nil {
			return err
		}
		if len(found()) == 0 {
			return errors.New("the signal is in no file")
		}
		return nil
	})
	require.NoError(t, c.TerminateWorkflow(t.Context(), run.GetID(), "", "test"))
	_, err := c.WorkflowService().DeleteWorkflowExecution(t.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
	})
	require.NoError(t, err)
	eventually(t, func(context.Context) error {
		if in := found(); len(in) > 0 {
			return fmt.Errorf("the signal is in the files with the suffixes %q", in)
		}
		return nil
	})
}

// TestKillDuringFirstStartLeavesNoHalfDatabase kills a server at moments between the creation of
// its file and the first client, and expects that the next one starts with the same file.
func TestKillDuringFirstStartLeavesNoHalfDatabase(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		t.Run("file"+suffix, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			first := launch(t, asServer, b.args())
			eventually(t, func(context.Context) error {
				_, err := os.Stat(b.dbFile + suffix)
				return err
			})
			first.kill(t)

			b.start(t)
			c := b.client(t, "default")
			work(t, c)
			run := startCounter(t, c, "after")
			require.NoError(t, c.SignalWorkflow(t.Context(), run.GetID(), "", finishSignal, nil))
			require.NoError(t, run.Get(t.Context(), nil))
		})
	}
}

// TestSingleSignalDoesNotWaitForQueueRead measures the time from sending a lone signal to the
// workflow handling it. A server that reads its queues 20 times a second, as it does by default,
// takes 50 ms for each; the fastest of them show how long one takes on a free machine.
func TestSingleSignalDoesNotWaitForQueueRead(t *testing.T) {
	t.Parallel()
	const (
		warmUp = 40 // a server that reads its queues rarely makes a few reads right after its start
		floor  = 50 * time.Millisecond
		enough = 20
	)
	b := setup(t)
	b.start(t)
	c := b.client(t, "default")
	counters := work(t, c)
	run := startCounter(t, c, "lone")
	deadline := time.Now().Add(waitLimit)
	var took []time.Duration
	for n, quick := 0, 0; quick < enough; n++ {
		require.True(t, time.Now().Before(deadline), "of %d signals, %d took less than half of %s", len(took), quick, floor)
		handled := counters.handle(n)
		start := time.Now()
		require.NoError(t, c.SignalWorkflow(t.Context(), run.GetID(), "", countSignal, n))
		select {
		case <-handled:
		case <-time.After(waitLimit):
			require.FailNow(t, "signal not handled", "number %d", n)
		}
		if n < warmUp {
			continue
		}
		took = append(took, time.Since(start))
		if took[len(took)-1] < floor/2 {
			quick++
		}
	}
	slices.Sort(took)
	t.Logf("signal to handled: p50 %s, p90 %s", took[len(took)/2], took[len(took)*9/10])
}

func TestSearchAttributesAreThereFromStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := b.start(t)
	c := b.client(t, "default")
	work(t, c)
	run := startCounter(t, c, "found")

	list := func(query string, want ...string) {
		t.Helper()
		eventually(t, func(ctx context.Context) error {
			found, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: query})
			if err != nil {
				return err
			}
			var ids []string
			for _, execution := range found.Executions {
				ids = append(ids, execution.Execution.WorkflowId)
			}
			if !slices.Equal(ids, want) {
				return fmt.Errorf("%s: got %v, want %v", query, ids, want)
			}
			return nil
		})
	}
	list(`OverwinterStatus = "counting"`, run.GetID())

	// A server with the same file and one more attribute has both.
	server.terminate(t)
	server = b.start(t, "--search-attribute", "OverwinterTries=Int")
	c = b.client(t, "default") // calls of the operator service are not retried until the connection is back
	attributes, err := c.OperatorService().ListSearchAttributes(t.Context(),
		&operatorservice.ListSearchAttributesRequest{Namespace: "default"})
	require.NoError(t, err)
	require.Equal(t, map[string]enumspb.IndexedValueType{
		"OverwinterStatus":     enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"OverwinterAgent":      enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"OverwinterOwner":      enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"OverwinterWorkspace":  enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"OverwinterGeneration": enumspb.INDEXED_VALUE_TYPE_INT,
		"OverwinterTries":      enumspb.INDEXED_VALUE_TYPE_INT,
	}, attributes.CustomAttributes)

	_, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: "trying", TaskQueue: counterQueue,
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyInt64("OverwinterTries").ValueSet(3),
			temporal.NewSearchAttributeKeyInt64("OverwinterGeneration").ValueSet(7),
		),
	}, "Count")
	require.NoError(t, err)
	list(`OverwinterTries > 2 AND OverwinterGeneration = 7`, "trying")
	list(`OverwinterStatus = "counting" AND OverwinterTries IS NULL`, run.GetID())

	// The type of an attribute cannot change, and a request for that changes nothing.
	server.terminate(t)
	refused := launch(t, asServer, b.args("--search-attribute", "OverwinterTries=Keyword"))
	require.Error(t, refused.waitExit(t))
	require.Contains(t, refused.stderr.text(), "search attribute OverwinterTries: exists with type Int, want Keyword")

	// Another namespace in the same file has different attributes.
	b.start(t, "--namespace", "second", "--retention", "48h")
	second := b.client(t, "second")
	described, err := second.WorkflowService().DescribeNamespace(t.Context(),
		&workflowservice.DescribeNamespaceRequest{Namespace: "second"})
	require.NoError(t, err)
	require.Equal(t, 48*time.Hour, described.Config.WorkflowExecutionRetentionTtl.AsDuration())
	attributes, err = second.OperatorService().ListSearchAttributes(t.Context(),
		&operatorservice.ListSearchAttributesRequest{Namespace: "second"})
	require.NoError(t, err)
	require.Len(t, attributes.CustomAttributes, len(sessionSearchAttributes))
}

func TestUIShowsNamespace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := b.start(t, "--ui-port", fmt.Sprint(b.uiPort))
	url := fmt.Sprintf("http://127.0.0.1:%d", b.uiPort)
	require.Equal(t, []string{"temporal " + b.address(), "ui " + url, "ready"}, strings.Split(server.stdout.text(), "\n"))

	for _, path := range []string{"/namespaces/default/workflows", "/api/v1/namespaces/default"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode, path)
	}
}

// A web page of another origin whose name resolves to this machine must not reach the UI's API, which
// can terminate and signal every workflow.
func TestUIRefusesForeignHostNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start(t, "--ui-port", fmt.Sprint(b.uiPort), "--ui-host", "Temporal.Internal")
	url := fmt.Sprintf("http://127.0.0.1:%d/api/v1/namespaces/default/workflows", b.uiPort)
	for host, want := range map[string]int{
		"evil.example":           http.StatusForbidden,
		"evil.example:8233":      http.StatusForbidden,
		"127.0.0.1.evil.example": http.StatusForbidden,
		"localhost.evil.example": http.StatusForbidden,
		"localhost:8233":         http.StatusOK,
		"LOCALHOST":              http.StatusOK,
		"127.0.0.1:8233":         http.StatusOK,
		"[::1]:8233":             http.StatusOK,
		"10.1.2.3":               http.StatusOK,
		"temporal.internal:8233": http.StatusOK,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode, host)
	}
}

func TestUIResponsesAreProtectedFromOtherOrigins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start(t, "--ui-port", fmt.Sprint(b.uiPort))
	url := fmt.Sprintf("http://127.0.0.1:%d", b.uiPort)
	type answer struct {
		method, path string
		status       int
		header       http.Header
	}
	ask := func(method, path, host string, header map[string]string) answer {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, url+path, http.NoBody)
		require.NoError(t, err)
		request.Host = host
		for name, value := range header {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return answer{method, path, response.StatusCode, response.Header}
	}
	for _, a := range []answer{
		ask(http.MethodGet, "/", "", nil), ask(http.MethodGet, "/nothing", "", nil), ask(http.MethodGet, "/api/v1/namespaces", "", nil),
		ask(http.MethodGet, "/api/v1/nothing", "", nil), ask(http.MethodHead, "/", "", nil), ask(http.MethodOptions, "/api/v1/namespaces", "", nil),
		ask(http.MethodGet, "/", "evil.example", nil),
	} {
		what := a.method + " " + a.path
		require.Equal(t, []string{"nosniff"}, a.header["X-Content-Type-Options"], what)
		require.Equal(t, []string{"SAMEORIGIN"}, a.header["X-Frame-Options"], what)
		require.Equal(t, []string{"same-origin"}, a.header["Cross-Origin-Resource-Policy"], what)
		if strings.HasPrefix(a.path, "/api/") {
			require.Equal(t, []string{"no-store"}, a.header["Cache-Control"], what)
		}
		require.Empty(t, a.header["Access-Control-Allow-Origin"], what)
	}
	const command = "/api/v1/namespaces/default/workflows/none/terminate"
	for name, header := range map[string]map[string]string{
		"another site":          {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
		"another port":          {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:3000"},
		"an old browser":        {"Origin": "http://127.0.0.1:3000"},
		"a page without origin": {"Origin": "null"},
	} {
		// The cookie and the token match, as they do if a page on another port of the same host has
		// set them.
		header["Cookie"], header["X-CSRF-Token"] = "_csrf=known", "known"
		require.Equal(t, http.StatusForbidden, ask(http.MethodPost, command, "", header).status, name)
	}
	own := map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": url, "Cookie": "_csrf=known", "X-CSRF-Token": "known"}
	require.Equal(t, http.StatusNotFound, ask(http.MethodPost, command, "", own).status, "there is no such workflow")
}

func TestStartErrorsAreOneSentence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	running := b.start(t, "--ui-port", fmt.Sprint(b.uiPort))
	other := setup(t)
	port, uiPort, dbFile := fmt.Sprint(other.port), fmt.Sprint(other.uiPort), other.dbFile
	garbage := t.TempDir() + "/garbage.db"
	require.NoError(t, os.WriteFile(garbage, []byte(strings.Repeat("this is not a database\n", 1000)), 0o600))

	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"port in use": {
			[]string{"--port", fmt.Sprint(b.port), "--ui-port", "0"},
			1,
			fmt.Sprintf("frontend: port %d on 127.0.0.1 is already in use", b.port),
		},
		"ui port in use": {
			[]string{"--port", port, "--ui-port", fmt.Sprint(b.uiPort)},
			1,
			fmt.Sprintf("ui: port %d on 127.0.0.1 is already in use", b.uiPort),
		},
		"database in use": {
			[]string{"--port", port, "--ui-port", uiPort, "--db-file", b.dbFile},
			1,
			fmt.Sprintf("database %s: is in use by process %d", b.dbFile, running.cmd.Process.Pid),
		},
		"broken database": {
			[]string{"--port", port, "--ui-port", uiPort, "--db-file", garbage},
			1,
			"database " + garbage + ": open: file is not a database (26)",
		},
		"no directory": {
			[]string{"--port", port, "--ui-port", uiPort, "--db-file", dbFile + "/none/x.db"},
			1,
			"no such file or directory",
		},
		"unknown setting": {
			[]string{"--port", port, "--ui-port", uiPort, "--dynamic-config-value", "history.noSuchThing=1"},
			1,
			`dynamic config history.noSuchThing=1: unregistered key "history.nosuchthing"`,
		},
		"setting of the wrong type": {
			[]string{"--port", port, "--ui-port", uiPort, "--dynamic-config-value", "history.maxInFlightUpdates=many"},
			1,
			"dynamic config history.maxInFlightUpdates=many: validation failed",
		},
		"unknown attribute type": {
			[]string{"--port", port, "--ui-port", uiPort, "--search-attribute", "Colour=Paint"},
			2,
			"--search-attribute Colour=Paint: not of the form Name=Type",
		},
		"attribute of ours with another type": {
			[]string{"--port", port, "--ui-port", uiPort, "--search-attribute", "OverwinterOwner=Int"},
			2,
			"--search-attribute OverwinterOwner=Int: overwinter needs it as Keyword",
		},
		"no address": {
			[]string{"--port", port, "--ip", "localhost"},
			2,
			`--ip: "localhost" is not an IP address`,
		},
		"port zero": {
			[]string{"--port", "0", "--ui-port", "0"},
			2,
			"port: 0 is not between 1 and 65535",
		},
		"unknown flag": {
			[]string{"--prot", "1"},
			2,
			"unknown flag --prot",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := launch(t, asServer, append([]string{"serve"}, tt.args...))
			require.Error(t, p.waitExit(t))
			require.Equal(t, tt.code, p.cmd.ProcessState.ExitCode())
			require.Contains(t, p.stderr.text(), "overwinter-temporal: ")
			require.Contains(t, p.stderr.text(), tt.want)
			require.Len(t, strings.Split(p.stderr.text(), "\n"), 1, p.stderr.text())
			require.Empty(t, p.stdout.text())
		})
	}
	content, err := os.ReadFile(garbage)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(content), "this is not a database"), "the file was left alone")
}

func TestFileOfAnotherSchemaIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start(t).terminate(t)
	info, err := os.Stat(b.dbFile)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	content, err := os.ReadFile(b.dbFile)
	require.NoError(t, err)
	require.Contains(t, string(content), "OverwinterStatus", "an orderly stop leaves all in the one file")

	version := temporalSchemaVersion(t, string(content))
	require.NoError(t, os.WriteFile(b.dbFile, []byte(strings.ReplaceAll(string(content), version, "9"+version[1:])), 0o600))
	p := launch(t, asServer, b.args())
	require.Error(t, p.waitExit(t))
	require.Contains(t, p.stderr.text(), "has schema 9"+version[1:]+", this program needs "+version)
}

// temporalSchemaVersion returns the schema version in the database.
func temporalSchemaVersion(t *testing.T, content string) string {
	t.Helper()
	for _, version := range []string{"0.11/0.1"} {
		if strings.Contains(content, version) {
			return version
		}
	}
	require.FailNow(t, "the file names no schema version")
	return ""
}

func TestStopsGracefullyUnderWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := b.start(t, "--ui-port", fmt.Sprint(b.uiPort))
	c := b.client(t, "default")
	counters := work(t, c)
	run := startCounter(t, c, "polling")
	handled := counters.handle(1)
	require.NoError(t, c.SignalWorkflow(t.Context(), run.GetID(), "", countSignal, 1))
	<-handled // so the worker polls

	start := time.Now()
	server.terminate(t)
	t.Logf("stopped after %s", time.Since(start))
}

func TestStopsGracefullyBeforeItIsReady(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := launch(t, asServer, b.args())
	eventually(t, func(context.Context) error { // signals are awaited from before that
		_, err := os.Stat(b.dbFile)
		return err
	})
	server.terminate(t)
	b.start(t)
}

func TestEndsWithStdin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := b.start(t, "--exit-with-stdin")
	require.NoError(t, server.stdin.Close())
	require.NoError(t, server.waitExit(t))
}

func TestWithoutFileNothingIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	args := []string{"serve", "--port", fmt.Sprint(b.port), "--ui-port", "0", "--log-level", "error"}
	server := launch(t, asServer, args)
	server.waitReady(t)
	c := b.client(t, "default")
	work(t, c)
	run := startCounter(t, c, "memory")
	require.NoError(t, c.SignalWorkflow(t.Context(), run.GetID(), "", finishSignal, nil))
	require.NoError(t, run.Get(t.Context(), nil))
	server.terminate(t)

	launch(t, asServer, args).waitReady(t)
	_, err := c.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
	_, gone := errors.AsType[*serviceerror.NotFound](err)
	require.True(t, gone, "%v", err)
}

// TestReplacesTemporalTool runs the program as the SDK's test suite runs the tool.
func TestReplacesTemporalTool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	script := t.TempDir() + "/temporal"
	require.NoError(t, os.WriteFile(script,
		[]byte(fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asServer, os.Args[0])), 0o700))
	server, err := testsuite.StartDevServer(t.Context(), testsuite.DevServerOptions{
		ExistingPath:  script,
		ClientOptions: &client.Options{HostPort: b.address(), Namespace: "suite", Logger: quiet{}},
		DBFilename:    b.dbFile,
		LogLevel:      "error",
		LogFormat:     "pretty",
		SearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyBool("Suite").ValueSet(true)),
	})
	require.NoError(t, err)
	defer func() {
		err := server.Stop()
		require.True(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
	}()

	work(t, server.Client())
	run := startCounter(t, server.Client(), "suite")
	require.NoError(t, server.Client().SignalWorkflow(t.Context(), run.GetID(), "", finishSignal, nil))
	require.NoError(t, run.Get(t.Context(), nil))
}

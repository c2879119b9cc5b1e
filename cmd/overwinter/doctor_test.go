package main

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/devstack"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// examine runs doctor on free ports and returns its output.
func examine(t *testing.T, args ...string) (result, []devstack.Finding) {
	t.Helper()
	r := run(context.WithoutCancel(t.Context()), append([]string{
		"doctor", "--json", "--runner-binary=/bin/true", "--temporal-binary=/bin/true",
		"--api-address=127.0.0.1:0", "--temporal-port=0", "--temporal-ui-port=0",
	}, args...)...)
	var findings []devstack.Finding
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &findings), r.stdout+r.stderr)
	return r, findings
}

// dataPlace returns a directory that Postgres's user can traverse if this user is root.
func dataPlace(t *testing.T) string {
	t.Helper()
	place, err := os.MkdirTemp("", "overwinter-doctor-") //nolint:usetesting // its parents must be open to another user
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(place)) })
	require.NoError(t, os.Chmod(place, 0o711))
	return place
}

// about returns the findings of one check.
func about(findings []devstack.Finding, check string) []devstack.Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f devstack.Finding) bool { return f.Check != check })
}

func TestDoctorPassesAndChangesNothing(t *testing.T) {
	t.Parallel()
	place := dataPlace(t)
	r, findings := examine(t, "--data-dir="+filepath.Join(place, "data"))
	require.Equal(t, exitDone, r.code, r.stdout)
	for _, check := range []string{"system", "data directory", "disk", "memory", "clock", "Postgres", "Temporal", "sandboxes", "npm", "node", "git"} {
		require.NotEmpty(t, about(findings, check), check)
	}
	require.Equal(t, devstack.OK, about(findings, "sandboxes")[0].Verdict)
	require.Contains(t, about(findings, "sandboxes")[0].Detail, "isolation namespaces")
	left, err := os.ReadDir(place)
	require.NoError(t, err)
	require.Empty(t, left)

	plain := run(t.Context(), "doctor", "--data-dir="+place, "--runner-binary=/bin/true", "--temporal-binary=/bin/true",
		"--api-address=127.0.0.1:0", "--temporal-port=0", "--temporal-ui-port=0")
	require.Equal(t, exitDone, plain.code, plain.stderr)
	require.Regexp(t, `(?m)^ok +Postgres +version \d+ in /`, plain.stdout)
}

func TestDoctorNamesMissingRequirements(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))

	for name, c := range map[string]struct{ flag, check, says string }{
		"a port in use":          {"--api-address=" + taken.Addr().String(), "ports", "already in use"},
		"no such Temporal":       {"--temporal-binary=/nowhere/temporal", "Temporal", "/nowhere/temporal"},
		"Temporal does not run":  {"--temporal-address=127.0.0.1:1", "Temporal", "--temporal-address 127.0.0.1:1"},
		"Postgres does not run":  {"--database-url=postgres://me:hidden@127.0.0.1:1/none?connect_timeout=1", "Postgres", "--database-url"},
		"data directory a file":  {"--data-dir=" + file, "data directory", "not a directory"},
		"data directory no dir":  {"--data-dir=/proc/overwinter", "data directory", "/proc"},
		"not a Postgres cluster": {"--data-dir=" + strange(t), "Postgres", "PG_VERSION"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{c.flag}
			if !strings.HasPrefix(c.flag, "--data-dir") {
				args = append(args, "--data-dir="+dataPlace(t))
			}
			r, findings := examine(t, args...)
			require.Equal(t, exitFailed, r.code, r.stdout)
			missing := slices.DeleteFunc(about(findings, c.check), func(f devstack.Finding) bool { return f.Verdict != devstack.Missing })
			require.Len(t, missing, 1, r.stdout)
			require.Contains(t, missing[0].Detail, c.says)
			require.NotContains(t, r.stdout+r.stderr, "hidden", "a password")
		})
	}
}

// strange returns a data directory whose database directory was not made by Postgres.
func strange(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "postgres"), 0o700))
	return dir
}

func TestDoctorChecksGivenDatabase(t *testing.T) {
	t.Parallel()
	database := postgrestest.EmptyURL(t)
	_, findings := examine(t, "--data-dir="+dataPlace(t), "--database-url="+database)
	require.Equal(t, devstack.Warning, about(findings, "Postgres")[0].Verdict)
	require.Contains(t, about(findings, "Postgres")[0].Detail, "superuser")

	connection, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer func() { require.NoError(t, connection.Close(context.WithoutCancel(t.Context()))) }()
	_, err = connection.Exec(t.Context(), "CREATE ROLE doctor_plain LOGIN")
	require.NoError(t, err)
	defer func() {
		_, err := connection.Exec(context.WithoutCancel(t.Context()), "DROP ROLE doctor_plain")
		require.NoError(t, err)
	}()
	plain, err := url.Parse(database)
	require.NoError(t, err)
	query := plain.Query()
	query.Set("user", "doctor_plain")
	plain.RawQuery = query.Encode()
	_, findings = examine(t, "--data-dir="+dataPlace(t), "--database-url="+plain.String())
	require.Equal(t, devstack.OK, about(findings, "Postgres")[0].Verdict, findings)
}

func TestDoctorFindsUnreachableStoredURLs(t *testing.T) {
	t.Parallel()
	database := postgrestest.URL(t)
	db := postgrestest.Open(t, database)
	keyring := keyringOf(t, keyText(1))
	for name, value := range map[string]string{
		"OPENAI_BASE_URL":         "http://me:hidden@localhost:11434/v1?key=hidden",
		"ANTHROPIC_BASE_URL":      "http://127.0.0.1:8901",
		"GOOGLE_GEMINI_BASE_URL":  "https://models.example.com",
		"OPENCODE_CONFIG_CONTENT": `{"provider":{"local":{"options":{"baseURL":"http://[::1]:4000/hidden"}}}}`,
		"OTHER":                   "http://127.0.0.1:5000",
	} {
		_, _, err := db.SecretPut(t.Context(), name, keyring.Seal(name, secret.NewValue(value)))
		require.NoError(t, err)
	}
	_, err := db.ProfileCreate(t.Context(), profile.Profile{Name: "near", Spec: profile.Spec{
		Environment: map[string]string{"OPENROUTER_BASE_URL": "http://localhost:11434"},
	}})
	require.NoError(t, err)
	look := func(args ...string) []devstack.Finding {
		r, findings := examine(t, append([]string{"--data-dir=" + dataPlace(t), "--database-url=" + database, "--secret-key=" + keyText(1)}, args...)...)
		require.NotContains(t, r.stdout+r.stderr, "hidden", "a part of a secret next to host and port")
		return about(findings, "base URLs")
	}

	remedy := []string{"overwinter dev --sandbox-host-ports 8901,11434,4000"}
	require.Equal(t, []devstack.Finding{
		{Check: "base URLs", Verdict: devstack.Warning, Detail: "secret ANTHROPIC_BASE_URL points to 127.0.0.1:8901 on this machine, which sandboxes cannot reach", Remedies: remedy},
		{Check: "base URLs", Verdict: devstack.Warning, Detail: "secret OPENAI_BASE_URL points to localhost:11434 on this machine, which sandboxes cannot reach", Remedies: remedy},
		{Check: "base URLs", Verdict: devstack.Warning, Detail: "secret OPENCODE_CONFIG_CONTENT points to [::1]:4000 on this machine, which sandboxes cannot reach", Remedies: remedy},
		{Check: "base URLs", Verdict: devstack.Warning, Detail: "profile near: OPENROUTER_BASE_URL points to localhost:11434 on this machine, which sandboxes cannot reach", Remedies: remedy},
	}, look())
	some := look("--sandbox-host-ports=4000-4009,8901")
	require.Len(t, some, 2)
	require.Equal(t, []string{"overwinter dev --sandbox-host-ports 4000-4009,8901,11434"}, some[0].Remedies)
	all := look("--sandbox-host-ports=4000,8901,11434")
	require.Len(t, all, 1)
	require.Equal(t, devstack.OK, all[0].Verdict)
	shared := look("--sandbox-network=shared")
	require.Len(t, shared, 1)
	require.Equal(t, devstack.OK, shared[0].Verdict)
	modal := look("--modal-token-id=ak-x", "--modal-token-secret=as-x")
	require.Len(t, modal, 4)
	require.Contains(t, modal[0].Detail, "they run on Modal")
}

// testForbidden is set for a process of the next test that may not create namespaces.
const testForbidden = "OVERWINTER_TEST_NAMESPACES_FORBIDDEN"

func TestDoctorExplainsForbiddenSandboxes(t *testing.T) {
	t.Parallel()
	if os.Getenv(testForbidden) != "" {
		r, findings := examine(t, "--data-dir="+dataPlace(t))
		require.Equal(t, exitFailed, r.code, r.stdout)
		found := about(findings, "sandboxes")
		require.Len(t, found, 1)
		require.Equal(t, devstack.Missing, found[0].Verdict)
		require.Contains(t, found[0].Detail, "user.max_user_namespaces is 0")
		require.Contains(t, found[0].Remedies, "sudo sysctl -w user.max_user_namespaces=15000")
		return
	}
	// A user namespace in which nested namespaces are forbidden simulates a machine that forbids
	// them.
	cmd := exec.Command("sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec "$0" -test.v "-test.run=^`+t.Name()+`$"`, os.Args[0])
	cmd.Env = append(os.Environ(), testForbidden+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "--- PASS: "+t.Name())
}

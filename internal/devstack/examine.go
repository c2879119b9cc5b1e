package devstack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
)

// checkTimeout bounds a check that depends on another process.
const checkTimeout = 10 * time.Second

// Examine checks the stack's requirements of this machine and changes nothing: the probe of
// sandboxes works in its own directory, which it removes. The findings are in the order in which a
// start needs them.
func Examine(ctx context.Context, c Config) ([]Finding, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return nil, fmt.Errorf("find data directory: %w", err)
	}
	running := lockedBy(dir)
	findings := []Finding{examineSystem(), examineDataDir(dir, running), examineDisk(dir), examineMemory(), examineClock()}
	findings = append(findings, examinePorts(ctx, c, running != "")...)
	findings = append(findings, examineDatabase(ctx, c, dir), examineTemporal(ctx, c))
	reach := reachesNothing
	if c.Modal {
		findings = append(findings, okay("sandboxes", "on Modal, not checked"))
	} else {
		var seen []Finding
		seen, reach = examineSandboxes(ctx, c, dir)
		findings = append(findings, seen...)
	}
	findings = append(findings, examineURLs(ctx, c, dir, running != "", reach)...)
	return append(findings, examineTools(ctx)...), nil
}

// lockedBy returns the process id of the dev that uses a data directory, "" if none does.
func lockedBy(dir string) string {
	file, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // read only
	// Closing the file releases the shared lock, so it blocks the start of a dev only during this
	// call.
	if !errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return ""
	}
	holder, err := os.ReadFile(file.Name())
	if pid := strings.TrimSpace(string(holder)); err == nil && pid != "" {
		return pid
	}
	return "unknown"
}

// examineDataDir checks whether the directory can be used or created.
func examineDataDir(dir, running string) Finding {
	const check = "data directory"
	choose := "choose another with --data-dir"
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		parent := existing(dir)
		if err := tryWrite(parent); err != nil {
			return missing(check, fmt.Sprintf("%s cannot be created in %s: %v", dir, parent, err), choose)
		}
		return okay(check, "%s will be created", dir)
	case err != nil:
		return missing(check, fmt.Sprintf("%s: %v", dir, reason(err)), choose)
	case !info.IsDir():
		return missing(check, dir+" is not a directory", choose)
	case tryWrite(dir) != nil:
		return missing(check, fmt.Sprintf("%s is not writable: %v", dir, tryWrite(dir)), choose)
	case running != "":
		return okay(check, "%s, in use by `overwinter dev` (process %s)", dir, running)
	case info.Mode().Perm()&^dataDirMode() != 0:
		return warning(check, fmt.Sprintf("%s is open to other users (mode %#o); the next start closes it", dir, info.Mode().Perm()))
	default:
		return okay(check, "%s", dir)
	}
}

// tryWrite creates a directory in dir and removes it, because permissions do not show that a file
// system is read-only or that even root cannot write to it.
func tryWrite(dir string) error {
	trial, err := os.MkdirTemp(dir, ".overwinter-doctor-")
	if err != nil {
		return reason(err)
	}
	return os.Remove(trial)
}

// existing returns the path, or its nearest existing parent.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// examinePorts checks whether the requested ports are free. A running stack uses them itself.
func examinePorts(ctx context.Context, c Config, running bool) []Finding {
	if running {
		return []Finding{okay("ports", "in use by the running `overwinter dev`")}
	}
	type request struct {
		host, flag string
		port       int
	}
	host, port, _ := net.SplitHostPort(c.APIAddress) // checked by Validate
	apiPort, _ := strconv.Atoi(port)
	wanted := []request{{host, "--api-address", apiPort}}
	if c.TemporalAddress == "" {
		wanted = append(wanted, request{loopback, "--temporal-port", c.TemporalPort}, request{loopback, "--temporal-ui-port", c.TemporalUIPort})
	}
	if !c.Modal {
		wanted = append(wanted, request{loopback, "--local-modal-port", c.LocalModalPort})
	}
	chooser := newPortChooser()
	defer chooser.close()
	var findings []Finding
	var free []string
	for _, w := range wanted {
		chosen, err := chooser.choose(ctx, w.host, w.port, 0, w.flag)
		switch {
		case err != nil:
			findings = append(findings, missing("ports", err.Error()))
		case w.port != 0:
			free = append(free, strconv.Itoa(chosen))
		}
	}
	if len(free) > 0 {
		findings = append(findings, okay("ports", "free: %s", strings.Join(free, ", ")))
	}
	return findings
}

// examineDatabase checks the Postgres that the stack would run, or the given one.
func examineDatabase(ctx context.Context, c Config, dir string) Finding {
	const check = "Postgres"
	if c.DatabaseURL != "" {
		return examineGivenDatabase(ctx, c.DatabaseURL)
	}
	major, err := clusterVersion(filepath.Join(dir, "postgres"))
	if err != nil {
		return missing(check, err.Error())
	}
	installs, err := findPostgres(ctx)
	if err != nil {
		return missing(check, err.Error())
	}
	if len(installs) == 0 {
		return missing(check, "PostgreSQL is not installed",
			"sudo apt-get install postgresql", "or give the address of a running one with --database-url")
	}
	install, err := choosePostgres(installs, major, filepath.Join(dir, "postgres"))
	if err != nil {
		return missing(check, err.Error())
	}
	user, err := choosePGUser(filepath.Join(dir, "postgres"))
	if err != nil {
		return missing(check, err.Error())
	}
	if existing(dir) == dir {
		if err := user.checkReach(dir); err != nil {
			return missing(check, err.Error())
		}
	}
	return okay(check, "version %d in %s", install.major, install.binDir)
}

// maxClockDifference is the tolerated difference between the clocks of this machine and Postgres.
const maxClockDifference = 2 * time.Second

// examineGivenDatabase checks whether a Postgres can be used, without migrating it.
func examineGivenDatabase(ctx context.Context, url string) (found Finding) {
	const check = "Postgres"
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		// pgx omits the password from its errors.
		return missing(check, fmt.Sprintf("--database-url: %v", err))
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }() // no call is in progress
	var version int
	var superuser, readOnly bool
	var now time.Time
	began := time.Now()
	err = connection.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000,
		(SELECT rolsuper FROM pg_roles WHERE rolname = current_user), pg_is_in_recovery(), clock_timestamp()`).
		Scan(&version, &superuser, &readOnly, &now)
	if err != nil {
		return missing(check, fmt.Sprintf("--database-url: %v", err))
	}
	middle := began.Add(time.Since(began) / 2)
	difference := now.Sub(middle).Abs().Round(time.Millisecond)
	switch {
	case version < oldestPostgres:
		return missing(check, fmt.Sprintf("version %d is too old, %d is needed", version, oldestPostgres))
	case readOnly:
		return missing(check, "the server is a standby, which takes no writes", "give the primary with --database-url")
	case difference > maxClockDifference:
		return warning(check, fmt.Sprintf("its clock differs from this machine's by %s", difference), "synchronize both, for example with chrony")
	case superuser:
		return warning(check, fmt.Sprintf("version %d; the role is a superuser, which overwinter does not need", version),
			"CREATE ROLE overwinter LOGIN PASSWORD '…'; ALTER DATABASE … OWNER TO overwinter;")
	default:
		return okay(check, "version %d, answers in %s", version, time.Since(began).Round(time.Millisecond))
	}
}

// examineTemporal checks the server that the stack would run, or the given one.
func examineTemporal(ctx context.Context, c Config) Finding {
	const check = "Temporal"
	if c.TemporalAddress == "" {
		path, err := findTemporal(c)
		if err != nil {
			return missing(check, err.Error())
		}
		return okay(check, "%s", path)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := temporalReady(c.TemporalAddress)(ctx); err != nil {
		return missing(check, fmt.Sprintf("--temporal-address %s: %v", c.TemporalAddress, err))
	}
	return okay(check, "%s serves", c.TemporalAddress)
}

// examineSandboxes starts a sandbox as the local Modal would, on the file system of the data directory.
func examineSandboxes(ctx context.Context, c Config, dir string) ([]Finding, reach) {
	const check = "sandboxes"
	level, err := box.ParseIsolation(c.Isolation)
	if err != nil {
		return []Finding{missing(check, err.Error())}, reachesPorts
	}
	network, err := box.ParseNetwork(c.SandboxNetwork)
	if err != nil {
		return []Finding{missing(check, err.Error())}, reachesPorts
	}
	trial, err := os.MkdirTemp(existing(dir), ".overwinter-doctor-")
	if err != nil {
		return []Finding{missing(check, fmt.Sprintf("not tried: %v", reason(err)))}, reachesPorts
	}
	defer func() { _ = os.RemoveAll(trial) }() // a directory that cannot be removed contains only the probe
	runtime, err := box.Open(ctx, box.Options{Dir: trial, Isolation: level, Network: network, Limits: c.SandboxLimits, Logger: c.Logger})
	if unsupported, ok := errors.AsType[*box.UnsupportedError](err); ok {
		return []Finding{unsupportedFinding(unsupported)}, reachesPorts
	}
	if err != nil {
		return []Finding{missing(check, err.Error())}, reachesPorts
	}
	defer func() { _ = runtime.Close() }() // the probe has ended
	way := "over overlayfs"
	if runtime.Copies() {
		way = "over copied files: starts and snapshots take time in proportion to their files"
	}
	networks, reach := "which share the machine's network", reachesAll
	if runtime.OwnsNetwork() {
		networks, reach = "each with its own network", reachesPorts
	}
	findings := []Finding{okay(check, "isolation %s %s, %s", runtime.Isolation(), way, networks)}
	if err := runtime.Unlimited(); err != nil {
		findings = append(findings, warning(check, "their memory and CPU time are monitored, not limited by the kernel, because there are no control groups: "+err.Error(),
			"give this user a delegated control group: systemd-run --user --scope -p Delegate=yes overwinter dev"))
	}
	for _, refusal := range runtime.Better() {
		findings = append(findings, warning(check, "a better level is not available: "+refusal.String()))
	}
	for _, lack := range runtime.Isolation().Lacks() {
		findings = append(findings, warning(check, "not at this level: "+lack.String()))
	}
	return findings, reach
}

// unsupportedFinding reports the obstacles of every level that was tried.
func unsupportedFinding(e *box.UnsupportedError) Finding {
	reasons := make([]string, 0, len(e.Refusals))
	for _, r := range e.Refusals {
		reasons = append(reasons, r.String())
	}
	f := missing("sandboxes", strings.Join(reasons, "; "), e.Remedies...)
	if e.Isolation == box.Auto {
		f.Remedies = append(f.Remedies, "or choose a weaker level with --isolation chroot or --isolation directory, for agents that you trust with your account")
	}
	return f
}

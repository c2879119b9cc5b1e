package devstack

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/devstack/child"
)

// logEnvironment makes overwinter's own programs log as JSON, so that the severity of a line can be
// parsed.
func logEnvironment(c Config) []string {
	return []string{"OVERWINTER_LOG_FORMAT=json", "OVERWINTER_LOG_LEVEL=" + strings.ToLower(c.LogLevel.String())}
}

// localModalSpec runs the local Modal. It gets no secrets, because sandboxes are its children. Its
// token is in its data directory.
func localModalSpec(c Config, dir *dataDir, port int) child.Spec {
	args := []string{"local-modal", "--address", loopbackAddress(port), "--data-dir", dir.join("modal")}
	if c.Isolation != "" {
		args = append(args, "--isolation", c.Isolation)
	}
	if c.SandboxNetwork != "" {
		args = append(args, "--sandbox-network", c.SandboxNetwork)
	}
	if c.SandboxHostPorts != "" {
		args = append(args, "--sandbox-host-ports", c.SandboxHostPorts)
	}
	if l := c.SandboxLimits; l.Processes > 0 {
		args = append(args, "--sandbox-processes", strconv.Itoa(l.Processes))
	}
	if l := c.SandboxLimits; l.Memory > 0 {
		args = append(args, "--sandbox-memory-mib", strconv.FormatInt(l.Memory>>20, 10))
	}
	if l := c.SandboxLimits; l.CPUs > 0 {
		args = append(args, "--sandbox-cpus", strconv.FormatFloat(l.CPUs, 'g', -1, 64))
	}
	if l := c.SandboxLimits; l.Disk > 0 {
		args = append(args, "--sandbox-disk-mib", strconv.FormatInt(l.Disk>>20, 10))
	}
	if l := c.SandboxLimits; l.Inodes > 0 {
		args = append(args, "--sandbox-inodes", strconv.FormatInt(l.Inodes, 10))
	}
	if l := c.SandboxLimits; l.Reserve > 0 {
		args = append(args, "--sandbox-disk-reserve-mib", strconv.FormatInt(l.Reserve>>20, 10))
	}
	if l := c.SandboxLimits; l.MemoryReserve > 0 {
		args = append(args, "--sandbox-memory-reserve-mib", strconv.FormatInt(l.MemoryReserve>>20, 10))
	}
	return child.Spec{
		Name: "local-modal",
		Command: child.Command{
			Path: c.Executable,
			Args: args,
			Env:  append(c.plainEnvironment(), logEnvironment(c)...),
		},
		Ready:       tcpReady(loopbackAddress(port)),
		StopTimeout: 20 * time.Second, // it ends its sandboxes, with exit snapshots
	}
}

// The variables of the user's environment that worker and api get: their own settings by prefix,
// and by name those that affect network access, file locations and the use of the machine. They
// must not get the user's keys in the shell's environment.
var (
	ownPrefixes  = []string{"OVERWINTER_", "TEMPORAL_", "MODAL_"}
	passedByName = []string{
		"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_ALL", "XDG_CACHE_HOME",
		"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "npm_config_registry", "npm_config_cache", "npm_config_userconfig",
		"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOTRACEBACK",
		"PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE",
	}
)

// passedOn returns the variables that worker and api get.
func (c Config) passedOn() []string {
	return slices.DeleteFunc(slices.Clone(c.Environment), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		own := slices.ContainsFunc(ownPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		return !own && !slices.Contains(passedByName, name)
	})
}

// programEnvironment returns the environment that worker and api share.
func programEnvironment(c Config, settings map[string]string) []string {
	env := append(c.passedOn(), logEnvironment(c)...)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		env = append(env, name+"="+settings[name])
	}
	return env
}

// workerStop is how long the worker may take to save sessions and to stop, after the time for running turns: see
// the default of worker.Drain.Grace.
const workerStop = time.Minute

// workerSpec runs the worker.
func workerSpec(c Config, env []string, healthPort int) child.Spec {
	return child.Spec{
		Name: "worker",
		Command: child.Command{
			Path: c.Executable,
			// Only one worker runs at a time, so sessions pinned to the previous build would have
			// no worker.
			Args: []string{"worker", "--health-address", loopbackAddress(healthPort), "--drain-timeout", c.DrainTimeout.String(), "--no-versioning"},
			Env:  env,
		},
		Ready:       httpReady("http://" + loopbackAddress(healthPort) + "/readyz"),
		StopTimeout: c.DrainTimeout + workerStop,
	}
}

// apiSpec runs the API.
func apiSpec(c Config, env []string, address string) child.Spec {
	return child.Spec{
		Name: "api",
		Command: child.Command{
			Path: c.Executable,
			Args: []string{"api", "--address", address},
			Env:  env,
		},
		Ready:       httpReady(baseURL(address) + "/readyz"),
		StopTimeout: 10 * time.Second,
	}
}

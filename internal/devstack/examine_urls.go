package devstack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/hostports"
)

// LoopbackURL is a stored URL that points to this machine's loopback interface.
type LoopbackURL struct {
	Holder  string // "secret OPENAI_BASE_URL", "profile local: OPENAI_BASE_URL"
	Address string // host and port
	Port    uint16
}

// reach describes which ports of this machine's loopback interface sandboxes reach.
type reach int

const (
	reachesNothing reach = iota // they run elsewhere
	reachesPorts                // those of --sandbox-host-ports
	reachesAll                  // they share the machine's network
)

// examineURLs looks for stored URLs that point to this machine and that sandboxes cannot reach.
func examineURLs(ctx context.Context, c Config, dir string, running bool, reach reach) []Finding {
	const check = "base URLs"
	if c.LoopbackURLs == nil {
		return nil
	}
	if reach == reachesAll {
		return []Finding{okay(check, "those on this machine are reachable: sandboxes share its network")}
	}
	database, key, err := storedAccess(c, dir, running)
	if err != nil {
		return []Finding{okay(check, "stored ones were not looked at: %v", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	urls, err := c.LoopbackURLs(ctx, database, key)
	if err != nil {
		return []Finding{okay(check, "stored ones were not looked at: %v", err)}
	}
	ports, err := hostports.Parse(c.SandboxHostPorts)
	if err != nil {
		return []Finding{missing(check, fmt.Sprintf("--sandbox-host-ports: %v", err))}
	}
	var refused []LoopbackURL
	var flag []string
	if text := ports.String(); text != "" {
		flag = append(flag, text)
	}
	open := ports
	for _, u := range urls {
		if reach == reachesPorts && ports.Contains(u.Port) {
			continue
		}
		refused = append(refused, u)
		if !open.Contains(u.Port) {
			flag = append(flag, strconv.Itoa(int(u.Port)))
			if open, err = hostports.Parse(strings.Join(flag, ",")); err != nil {
				return []Finding{missing(check, fmt.Sprintf("--sandbox-host-ports: %v", err))}
			}
		}
	}
	if len(refused) == 0 {
		return []Finding{okay(check, "none points to a port of this machine that sandboxes cannot reach")}
	}
	var findings []Finding
	for _, u := range refused {
		finding := fmt.Sprintf("%s points to %s on this machine, which sandboxes cannot reach", u.Holder, u.Address)
		if reach == reachesNothing {
			findings = append(findings, warning(check, finding+": they run on Modal", "store an address that Modal can reach"))
			continue
		}
		findings = append(findings, warning(check, finding, "overwinter dev --sandbox-host-ports "+open.String()))
	}
	return findings
}

// storedAccess returns the URL of the database and the key of its secrets, without creating either.
func storedAccess(c Config, dir string, running bool) (database, key string, err error) {
	if key = c.SecretKey.Reveal(); key == "" {
		content, err := os.ReadFile(filepath.Join(dir, "secret.key"))
		if err != nil {
			return "", "", fmt.Errorf("no key of the installation: %w", reason(err))
		}
		key = strings.TrimSpace(string(content))
	}
	if c.DatabaseURL != "" {
		return c.DatabaseURL, key, nil
	}
	if !running {
		return "", "", fmt.Errorf("the database is not running; check again while `overwinter dev` runs")
	}
	password, err := os.ReadFile(filepath.Join(dir, "postgres-app.password"))
	if err != nil {
		return "", "", fmt.Errorf("no password of the database: %w", reason(err))
	}
	server := postgresServer{port: (&dataDir{path: dir}).readPorts().Postgres, password: strings.TrimSpace(string(password))}
	return server.url(), key, nil
}

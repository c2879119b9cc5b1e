package turn

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// codeAuthentication is the code of the error event of a turn whose key was refused by the model's
// server.
const codeAuthentication = "authentication_failed"

// maxQuoted bounds the quoted output of the agent in a reason.
const maxQuoted = 300

// usedKey is a key that the agent received.
type usedKey struct {
	name, provider string
	isStored       bool // stored as a secret; otherwise the key is a variable of the profile
}

// unauthorized returns the reason of a turn that failed because the model's server refused the
// agent's key. The reason names the server and the key, and how to fix the problem.
func (a *attempt) unauthorized(ctx context.Context, end agent.TurnEnd) string {
	launch, err := a.adapter.Launch(a.launchInput())
	var secrets map[string]string
	if err == nil {
		secrets, err = a.secrets(ctx, launch.Secrets)
	}
	if err != nil {
		a.log().WarnContext(ctx, "could not find out which key was refused", slog.Any("error", err))
		return "authentication failed: " + end.Reason
	}
	var env map[string]string
	if p := a.start.Profile; p != nil {
		launch.Secrets = slices.Concat(launch.Secrets, p.Secrets)
		env = p.Environment
	}
	return refusal(end, launch.Secrets, secrets, env)
}

// refusal describes a refused key. names lists the secrets that the agent can use, in order of
// preference. The agent had the secrets in secrets and the variables in env.
func refusal(end agent.TurnEnd, names []string, secrets, env map[string]string) string {
	keys := keysOf(*end.Unauthorized, names, secrets, env)
	var b strings.Builder
	b.WriteString("authentication failed: the model server")
	if server := serverOf(*end.Unauthorized, keys, secrets, env); server != "" {
		b.WriteString(" at " + server)
	}
	fmt.Fprintf(&b, " responded with %d", end.Unauthorized.Status)
	var stored, variables, remedy []string
	for _, k := range keys {
		if k.isStored {
			stored = append(stored, k.name)
			remedy = append(remedy, "PUT /api/secrets/"+k.name)
		} else {
			variables = append(variables, k.name)
		}
	}
	switch {
	case len(stored) > 0:
		fmt.Fprintf(&b, " to the secret %s; store a valid one with %s", strings.Join(stored, " or "), strings.Join(remedy, " or "))
	case len(variables) > 0:
		fmt.Fprintf(&b, " to the key in %s of the profile; store a new version of the profile", strings.Join(variables, " or "))
	default:
		i := slices.IndexFunc(names, func(name string) bool { _, ok := secret.ProviderOfKey(name); return ok })
		if i < 0 {
			b.WriteString("; the agent was given no key: store one with PUT /api/secrets/NAME, and name it in the secrets of the profile")
		} else {
			fmt.Fprintf(&b, "; the agent was given no key: store one with PUT /api/secrets/%s", names[i])
		}
	}
	if reason := strings.TrimSpace(end.Reason); reason != "" {
		if len(reason) > maxQuoted {
			reason = strings.ToValidUTF8(reason[:maxQuoted], "") + "…"
		}
		b.WriteString(". The agent reported: " + reason)
	}
	return b.String()
}

// keysOf returns the keys among names that the agent received. If the refusing server is known, it
// returns only the keys for that server.
func keysOf(refused agent.Unauthorized, names []string, secrets, env map[string]string) []usedKey {
	var all, matching []usedKey
	for _, name := range names {
		provider, ok := secret.ProviderOfKey(name)
		if !ok || secrets[name] == "" && env[name] == "" || slices.ContainsFunc(all, func(k usedKey) bool { return k.name == name }) {
			continue
		}
		k := usedKey{name: name, provider: provider, isStored: secrets[name] != ""}
		all = append(all, k)
		host, err := secret.HostOf(refused.URL)
		if refused.Provider != "" && secret.ProviderID(refused.Provider) == provider || err == nil && slices.Contains(secret.OwnHosts(provider), host) {
			matching = append(matching, k)
		}
	}
	if len(matching) > 0 {
		return matching
	}
	return all
}

// serverOf returns the address of the server that refused the key: the configured address, the one
// that the agent reported, or the default of the provider. The address has no path and no password.
func serverOf(refused agent.Unauthorized, keys []usedKey, secrets, env map[string]string) string {
	var base, standard string
	if len(keys) > 0 {
		provider := keys[0].provider
		for _, variables := range []map[string]string{env, secrets} { // a stored variable takes precedence
			for name, value := range variables {
				if p, ok := secret.ProviderOfURL(name); ok && p == provider && value != "" {
					base = value
				}
			}
		}
		if own := secret.OwnHosts(provider); len(own) > 0 {
			standard = "https://" + own[0]
		}
	}
	u, err := url.Parse(strings.TrimSpace(cmp.Or(base, refused.URL, standard)))
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

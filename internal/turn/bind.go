package turn

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/loopback"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// A stored key is bound to hosts: those that were stored with it or, if there are none, its
// provider's hosts and the host of the base URL that is stored for the provider. The profile of a
// session cannot redirect it to another host. This covers variables and the configuration files of
// agents; a profile that runs its own programs can do anything with the keys it receives.

// boundKey is a stored key that an agent receives.
type boundKey struct {
	name     string
	provider string
	derived  []string // hosts of the provider, and of the stored base URLs
	explicit []string // hosts that the key was stored with
}

// hosts returns all hosts that the key is bound to.
func (k boundKey) hosts() []string {
	if len(k.explicit) > 0 {
		return k.explicit
	}
	return k.derived
}

// boundError is a key that would be sent to a host that it is not bound to.
type boundError struct {
	key  boundKey
	from string // the setting that names the host
	base string
}

func (e *boundError) Error() string {
	host, err := secret.HostOf(e.base)
	if err != nil {
		return fmt.Sprintf("%s is not a URL of http or https, and the secret %s would be sent to it", e.from, e.key.name)
	}
	bound := strings.Join(e.key.hosts(), ", ")
	if bound == "" {
		bound = "no host"
	}
	return fmt.Sprintf("%s sends the secret %s to %s, but it is bound to %s (its provider over https only); "+
		"to allow it, store the secret again with \"hosts\": [%q]", e.from, e.key.name, host, bound, host)
}

// bind refuses to start an agent whose keys would be sent to a host that they are not bound to.
// secrets are the agent's stored secrets, which override the variables in env.
func (a *attempt) bind(ctx context.Context, secrets, env map[string]string) error {
	keys, err := a.boundKeys(ctx, secrets, env)
	if err != nil || len(keys) == 0 {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if err := checkVariable(name, name, secrets[name], keys, true); err != nil {
			return final(Refused, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if secrets[name] != "" {
			continue
		}
		if err := checkVariable(name, name+" of the profile", env[name], keys, false); err != nil {
			return final(Refused, err)
		}
	}
	if a.start.Profile != nil {
		if err := checkFiles(a.start.Profile.Files, keys); err != nil {
			return final(Refused, err)
		}
	}
	if err := checkDefaults(keys, secrets, env); err != nil {
		return final(Refused, err)
	}
	return nil
}

// boundKeys returns the keys among the secrets of an agent, with the hosts that they are bound to.
func (a *attempt) boundKeys(ctx context.Context, secrets, env map[string]string) ([]boundKey, error) {
	var keys []boundKey
	var names []string // of the keys, and of the base URLs of their providers
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		provider, ok := secret.ProviderOfKey(name)
		if !ok {
			continue
		}
		keys = append(keys, boundKey{name: name, provider: provider, derived: slices.Clone(secret.OwnHosts(provider))})
		names = append(names, name)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	for name := range env {
		provider, ok := secret.ProviderOfURL(name)
		if ok && secrets[name] == "" && slices.ContainsFunc(keys, func(k boundKey) bool { return k.provider == provider }) {
			names = append(names, name)
		}
	}
	found := map[string]secret.Stored{}
	maps.Copy(found, a.stored)
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(a.asked, name) })
	if len(names) > 0 { // the hosts of the keys that the agent receives were read with the keys
		more, err := a.Secrets.Secrets(ctx, names)
		if err != nil {
			return nil, Stored(err)
		}
		maps.Copy(found, more)
	}
	for i := range keys {
		keys[i].explicit = found[keys[i].name].Hosts
	}
	// Stored base URLs have the same owner as stored keys. This includes base URLs that this agent
	// does not receive.
	for name, s := range found {
		if provider, ok := secret.ProviderOfURL(name); ok {
			addOwn(keys, provider, s.Value.Reveal())
		}
	}
	for name, value := range secrets {
		if provider, ok := secret.ProviderOfURL(name); ok {
			addOwn(keys, provider, value)
		}
	}
	return keys, nil
}

// addOwn adds the host of a stored base URL to the hosts of its provider's keys.
func addOwn(keys []boundKey, provider, base string) {
	host, err := secret.HostOf(base)
	if err != nil {
		return
	}
	for i := range keys {
		if keys[i].provider == provider && !slices.Contains(keys[i].derived, host) {
			keys[i].derived = append(keys[i].derived, host)
		}
	}
}

// checkVariable checks the host to which a variable directs the keys of its provider. A stored
// variable has the same owner as the keys, so it is only checked against the hosts that were stored
// with a key.
func checkVariable(name, from, value string, keys []boundKey, isStored bool) error {
	if value == "" {
		return nil
	}
	if strings.HasSuffix(name, loopback.ConfigSuffix) {
		return checkConfig(from, value, keys, isStored)
	}
	provider, ok := secret.ProviderOfURL(name)
	if !ok {
		return nil
	}
	return checkURL(from, value, keys, isStored, func(k boundKey) bool { return k.provider == provider })
}

func checkURL(from, base string, keys []boundKey, isStored bool, concerns func(boundKey) bool) error {
	for _, k := range keys {
		if !concerns(k) || isStored && len(k.explicit) == 0 {
			continue
		}
		own, allowed := k.derived, k.explicit
		if len(k.explicit) > 0 {
			own = nil
		} else if storedHost(k, base) {
			continue // http is allowed too, because it is stored
		}
		if !secret.Sends(base, own, allowed) {
			return &boundError{key: k, from: from, base: base}
		}
	}
	return nil
}

// storedHost reports whether a base URL has the host of a stored base URL.
func storedHost(k boundKey, base string) bool {
	host, err := secret.HostOf(base)
	return err == nil && slices.Contains(k.derived, host) && !slices.Contains(secret.OwnHosts(k.provider), host)
}

// environmentReference matches a variable in a configuration: {env:NAME}, ${NAME} or $NAME.
var environmentReference = regexp.MustCompile(`\{env:([A-Za-z_][A-Za-z0-9_]*)\}|\$\{?([A-Za-z_][A-Za-z0-9_]*)`)

// checkConfig checks the base URLs in a configuration. The server at each URL receives the keys of
// its provider, and the keys named next to the URL.
func checkConfig(from, text string, keys []boundKey, isStored bool) error {
	var document any
	if json.Unmarshal([]byte(text), &document) != nil {
		return checkText(from, text, keys, isStored)
	}
	parts := map[string]any{"": document}
	if top, ok := document.(map[string]any); ok {
		if providers, ok := top["provider"].(map[string]any); ok {
			rest := maps.Clone(top)
			delete(rest, "provider")
			parts = maps.Clone(providers)
			parts[""] = rest
		}
	}
	for _, id := range slices.Sorted(maps.Keys(parts)) {
		part := parts[id]
		raw, err := json.Marshal(part)
		if err != nil {
			return err
		}
		named := references(string(raw))
		concerns := func(k boundKey) bool { return slices.Contains(named, k.name) || k.provider == secret.ProviderID(id) }
		err = loopback.EachBaseURL(part, func(base string) (string, error) { return base, checkURL(from, base, keys, isStored, concerns) })
		if err != nil {
			return err
		}
	}
	return nil
}

func references(text string) []string {
	var names []string
	for _, m := range environmentReference.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1]+m[2])
	}
	return names
}

// textURL finds base URLs in configurations that are not JSON: NAME_BASE_URL=…, base_url = "…",
// "baseURL": "…".
var textURL = regexp.MustCompile(`(?i)([A-Z0-9_]*BASE_?URL)["']?\s*[:=]\s*["']?([a-z]+://[^\s"',}]+)`)

// checkText checks the base URLs in a text. A URL whose name contains a provider is checked for the
// keys of that provider, and any other URL for all keys.
func checkText(from, text string, keys []boundKey, isStored bool) error {
	for _, m := range textURL.FindAllStringSubmatch(text, -1) {
		provider, ok := secret.ProviderOfURL(m[1])
		concerns := func(k boundKey) bool { return !ok || k.provider == provider }
		if err := checkURL(from, m[2], keys, isStored, concerns); err != nil {
			return err
		}
	}
	return nil
}

// checkFiles checks the configuration files of agents in a profile.
func checkFiles(files []profile.File, keys []boundKey) error {
	for _, f := range files {
		if !f.IsConfiguration() {
			continue
		}
		from := "the profile's file " + f.Path
		if strings.HasPrefix(path.Base(f.Path), "opencode.json") {
			if err := checkConfig(from, f.Content, keys, false); err != nil {
				return err
			}
			continue
		}
		if err := checkText(from, f.Content, keys, false); err != nil {
			return err
		}
	}
	return nil
}

// checkDefaults refuses a key that is bound to hosts other than its provider's but has no base URL,
// because the key would be sent to the provider.
func checkDefaults(keys []boundKey, secrets, env map[string]string) error {
	for _, k := range keys {
		own := secret.OwnHosts(k.provider)
		if len(k.explicit) == 0 || len(own) == 0 {
			continue
		}
		pointed := slices.ContainsFunc(own, func(host string) bool { return slices.Contains(k.explicit, host) })
		for _, variables := range []map[string]string{secrets, env} {
			for name, value := range variables {
				provider, ok := secret.ProviderOfURL(name)
				pointed = pointed || value != "" && (ok && provider == k.provider || strings.HasSuffix(name, loopback.ConfigSuffix))
			}
		}
		if !pointed {
			return &boundError{key: k, from: "the provider's default", base: "https://" + own[0]}
		}
	}
	return nil
}

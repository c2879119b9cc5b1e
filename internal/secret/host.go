package secret

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// MaxHosts bounds the hosts that one secret is bound to.
const MaxHosts = 20

var hostName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?$`)

// ValidHost reports whether a secret may be bound to the host: in lower case, with a port unless it
// is the default port of http or https.
func ValidHost(host string) bool { return len(host) <= 260 && hostName.MatchString(host) }

// ownHosts maps known providers to their own hosts.
var ownHosts = map[string][]string{
	"anthropic":  {"api.anthropic.com"},
	"openai":     {"api.openai.com", "eu.api.openai.com", "us.api.openai.com"},
	"google":     {"generativelanguage.googleapis.com", "aiplatform.googleapis.com"},
	"mistral":    {"api.mistral.ai", "codestral.mistral.ai"},
	"openrouter": {"openrouter.ai"},
	"groq":       {"api.groq.com"},
	"xai":        {"api.x.ai"},
	"deepseek":   {"api.deepseek.com"},
	"moonshot":   {"api.moonshot.ai", "api.moonshot.cn"},
}

// aliases maps further prefixes of variables to their provider.
var aliases = map[string]string{
	"claude": "anthropic", "claude_code": "anthropic", "gemini": "google", "google_gemini": "google", "google_vertex": "google",
	"google_generative_ai": "google", "google_genai": "google", "vertex": "google",
}

var (
	keySuffixes = []string{"_API_KEY", "_AUTH_TOKEN", "_OAUTH_TOKEN", "_ACCESS_TOKEN", "_API_TOKEN", "_TOKEN", "_KEY"}
	urlSuffixes = []string{"_API_BASE_URL", "_BASE_URL", "_API_BASE", "_API_URL", "_API_HOST", "_ENDPOINT"}
)

// ProviderOfKey returns the provider of the key in a secret with that name, such as anthropic;
// false if the name is not that of a key.
func ProviderOfKey(name string) (string, bool) { return provider(name, keySuffixes) }

// ProviderOfURL returns the provider whose address a variable with that name contains.
func ProviderOfURL(name string) (string, bool) { return provider(name, urlSuffixes) }

// ProviderID returns the provider with that id in an agent's configuration.
func ProviderID(id string) string {
	id = strings.ReplaceAll(strings.ToLower(id), "-", "_")
	if alias, ok := aliases[id]; ok {
		return alias
	}
	for known := range ownHosts { // such as ANTHROPIC_BEDROCK
		if strings.HasPrefix(id, known+"_") {
			return known
		}
	}
	return id
}

func provider(name string, suffixes []string) (string, bool) {
	upper := strings.ToUpper(name)
	for _, suffix := range suffixes {
		if prefix, ok := strings.CutSuffix(upper, suffix); ok && prefix != "" {
			return ProviderID(prefix), true
		}
	}
	return "", false
}

// OwnHosts returns the hosts for which a provider's keys are intended, if the provider is known.
func OwnHosts(provider string) []string { return ownHosts[provider] }

// HostOf returns the host to which requests to a base URL are sent, in the form that ValidHost
// accepts: with its port unless that is the default. It fails if base is not an http or https URL.
func HostOf(base string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(base))
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("not a URL with a host")
	}
	scheme := strings.ToLower(u.Scheme)
	standard, ok := map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}[scheme]
	if !ok {
		return "", fmt.Errorf("not a URL of http or https")
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if port := u.Port(); port != "" && port != standard {
		return net.JoinHostPort(host, port), nil
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]", nil
	}
	return host, nil
}

// Sends reports whether a key that is bound to hosts may be sent to a base URL. A provider's own
// host is allowed only over https.
func Sends(base string, own, stated []string) bool {
	host, err := HostOf(base)
	if err != nil {
		return false
	}
	if slices.Contains(stated, host) {
		return true
	}
	return slices.Contains(own, host) && strings.HasPrefix(strings.ToLower(strings.TrimSpace(base)), "https:")
}

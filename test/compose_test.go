package test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/overwinter-dev/overwinter/internal/porttest"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
)

// compose is the part of docker-compose.yml that is used. Other keys are refused, so that a new key
// requires a review of these tests.
type compose struct {
	Shared   service            `yaml:"x-overwinter"`
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any     `yaml:"volumes"`
	Networks map[string]struct{ Internal bool }
}

type service struct {
	Build       struct{ Context, Target string }
	Image       string
	Restart     string
	Entrypoint  []string
	Command     []string
	Environment map[string]string
	Volumes     []string
	Ports       []string
	Networks    []string
	NetworkMode string                                `yaml:"network_mode"`
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck *struct {
		Test     []string
		Interval string
		Retries  int
	}
	User            string
	Privileged      bool
	ReadOnly        bool `yaml:"read_only"`
	Tmpfs           []string
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	Init            bool
	StopGracePeriod string `yaml:"stop_grace_period"`
}

// image is a stage of the Dockerfile.
type image struct {
	base       string
	entrypoint []string
	command    []string
	user       string
	copied     []string // paths that COPY takes from other stages
	volumes    []string
}

// composeVariables are the variables that a user sets for docker compose.
func composeVariables() map[string]string {
	return map[string]string{
		"OVERWINTER_API_KEY":    "a key of at least twenty characters",
		"OVERWINTER_SECRET_KEY": base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)),
		"POSTGRES_PASSWORD":     "secret",
		"MODAL_TOKEN_SECRET":    "another long random word",
	}
}

// TestComposeFileFitsPrograms compares docker-compose.yml and the Dockerfile with the built
// programs, without Docker.
func TestComposeFileFitsPrograms(t *testing.T) {
	t.Parallel()
	c, images := readCompose(t, composeVariables()), readDockerfile(t)
	variables := programVariables(t)
	require.ElementsMatch(t, []string{"postgres", "temporal", "migrate", "api", "worker", "local-modal", "loopback"}, keys(c.Services))

	mounted := map[string]bool{}
	for name, s := range c.Services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entrypoint, command := s.Entrypoint, s.Command
			if target := s.Build.Target; target != "" {
				require.Equal(t, ".", s.Build.Context)
				require.Contains(t, images, target, "the Dockerfile has no such stage")
				if len(entrypoint) == 0 {
					entrypoint = images[target].entrypoint
					if len(command) == 0 {
						command = images[target].command
					}
				}
			} else {
				require.Regexp(t, `^[a-z]+:\d+`, s.Image, "an image of others has a version")
			}
			if len(entrypoint) == 1 && strings.HasPrefix(entrypoint[0], "overwinter") {
				requireCommand(t, entrypoint[0], command)
				for v := range s.Environment {
					require.Contains(t, variables, v, "no program reads it")
				}
			}
			for dependency, d := range s.DependsOn {
				require.Contains(t, c.Services, dependency)
				switch d.Condition {
				case "service_healthy":
					require.NotNil(t, c.Services[dependency].Healthcheck)
				case "service_completed_successfully":
					require.Equal(t, "no", c.Services[dependency].Restart, "it would start for ever")
				default:
					require.Equal(t, "service_started", d.Condition)
				}
			}
			if s.NetworkMode != "" {
				owner, ok := strings.CutPrefix(s.NetworkMode, "service:")
				require.True(t, ok, s.NetworkMode)
				require.Contains(t, c.Services, owner)
				require.Empty(t, s.Ports, "ports are published by %s, whose network it is", owner)
			}
		})
		for _, v := range s.Volumes {
			volume, directory, ok := strings.Cut(v, ":")
			require.True(t, ok, v)
			if strings.HasPrefix(volume, "./") {
				require.FileExists(t, filepath.Join("..", volume))
				require.True(t, strings.HasSuffix(directory, ":ro"), v)
				continue
			}
			require.Contains(t, c.Volumes, volume)
			require.True(t, filepath.IsAbs(directory), v)
			mounted[volume] = true
		}
	}
	require.ElementsMatch(t, keys(c.Volumes), keys(mounted), "every volume is used")

	t.Run("the parts find each other", func(t *testing.T) {
		t.Parallel()
		postgres := c.Services["postgres"].Environment
		role, err := os.ReadFile(filepath.Join("..", "docker", "postgres-role.sh"))
		require.NoError(t, err)
		for _, name := range []string{"migrate", "api", "worker"} {
			env := c.Services[name].Environment
			database, err := url.Parse(env["OVERWINTER_DATABASE_URL"])
			require.NoError(t, err)
			password, _ := database.User.Password()
			require.Equal(t, "postgres:5432", database.Host)
			require.NotEqual(t, postgres["POSTGRES_USER"], database.User.Username(), "it is a superuser")
			require.Contains(t, string(role), "CREATE ROLE "+database.User.Username()+" LOGIN NOSUPERUSER PASSWORD :'password'")
			require.Contains(t, string(role), "CREATE DATABASE "+strings.TrimPrefix(database.Path, "/")+" OWNER "+database.User.Username())
			require.Equal(t, postgres["POSTGRES_PASSWORD"], password)
			require.Equal(t, "temporal:"+flagValue(t, images["temporal"].command, "--port"), env["TEMPORAL_ADDRESS"])
		}
		worker, modal := c.Services["worker"], c.Services["local-modal"]
		require.Equal(t, "http://"+flagValue(t, modal.Command, "--address"), worker.Environment["MODAL_SERVER_URL"])
		require.Equal(t, worker.NetworkMode, modal.NetworkMode, "the local Modal listens on loopback only")
		require.Equal(t, worker.Environment["OVERWINTER_SECRET_KEY"], c.Services["api"].Environment["OVERWINTER_SECRET_KEY"])
		require.NotContains(t, modal.Environment, "OVERWINTER_DATABASE_URL", "sandboxes are its children")
		require.Equal(t, worker.Environment["MODAL_TOKEN_ID"], modal.Environment["OVERWINTER_LOCALMODAL_TOKEN_ID"])
		require.Equal(t, worker.Environment["MODAL_TOKEN_SECRET"], modal.Environment["OVERWINTER_LOCALMODAL_TOKEN_SECRET"])
		require.Contains(t, worker.Healthcheck.Test, "http://"+flagValue(t, worker.Command, "--health-address")+"/readyz")
		require.Contains(t, c.Services["temporal"].Ports, "127.0.0.1:8233:"+flagValue(t, images["temporal"].command, "--ui-port"))
	})

	t.Run("networks are as narrow as they can be", func(t *testing.T) {
		t.Parallel()
		networks := map[string][]string{}
		for name, s := range c.Services {
			require.Equal(t, s.NetworkMode == "", len(s.Networks) > 0, "%s names its networks, or whose it shares", name)
			for _, n := range s.Networks {
				require.Contains(t, c.Networks, n, name)
				networks[n] = append(networks[n], name)
			}
			published := slices.ContainsFunc(s.Networks, func(n string) bool { return !c.Networks[n].Internal })
			require.True(t, published || len(s.Ports) == 0, "%s: an internal network publishes no port", name)
		}
		require.True(t, c.Networks["database"].Internal)
		require.ElementsMatch(t, []string{"postgres", "migrate", "api", "loopback"}, networks["database"])
		require.Equal(t, []string{"database"}, c.Services["postgres"].Networks)
		require.NotContains(t, networks["database"], "temporal")
	})

	t.Run("only the local Modal has privileges", func(t *testing.T) {
		t.Parallel()
		for name, s := range c.Services {
			for _, port := range s.Ports {
				require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s publishes %s beyond this machine", name, port)
			}
			if s.Build.Target != "overwinter" {
				continue
			}
			if name == "local-modal" {
				require.True(t, s.Privileged)
				require.Equal(t, "root", s.User)
				continue
			}
			require.False(t, s.Privileged, name)
			require.Empty(t, s.User, "%s runs as the image's user", name)
			require.True(t, s.ReadOnly, name)
			require.Equal(t, []string{"ALL"}, s.CapDrop, name)
			require.Equal(t, []string{"no-new-privileges:true"}, s.SecurityOpt, name)
		}
		require.NotContains(t, []string{"", "root"}, images["overwinter"].user)
		require.NotContains(t, []string{"", "root"}, images["temporal"].user)
		for _, file := range []string{".gitignore", ".dockerignore"} {
			raw, err := os.ReadFile(filepath.Join("..", file))
			require.NoError(t, err)
			require.Contains(t, strings.Split(string(raw), "\n"), ".env", file)
		}
	})

	t.Run("real Modal takes the place of the local one", func(t *testing.T) {
		t.Parallel()
		given := composeVariables()
		given["MODAL_SERVER_URL"], given["MODAL_TOKEN_ID"], given["MODAL_TOKEN_SECRET"] = "https://api.modal.com:443", "ak-1", "as-1"
		worker := readCompose(t, given).Services["worker"]
		for name, value := range given {
			if strings.HasPrefix(name, "MODAL_") {
				require.Equal(t, value, worker.Environment[name])
			}
		}
	})

	t.Run("stages copy built files", func(t *testing.T) {
		t.Parallel()
		for name, i := range images {
			for _, file := range i.copied {
				program, ok := strings.CutPrefix(file, "/src/bin/")
				require.True(t, ok, "%s: %s", name, file)
				require.FileExists(t, filepath.Join("..", "bin", program))
			}
		}
		require.Contains(t, images["overwinter"].copied, "/src/bin/overwinter-runner", "workers look for it next to overwinter")
	})
}

// TestComposeFileWorksByHand runs the commands of docker-compose.yml with its environment, except
// for addresses and directories of this machine, and uses the system with the API key.
func TestComposeFileWorksByHand(t *testing.T) {
	t.Parallel()
	given := composeVariables()
	c, images := readCompose(t, given), readDockerfile(t)
	dir := stackDir(t)
	require.NoError(t, os.MkdirAll(dir, 0o755)) // sandboxes of other users are below it
	address := func() string { return fmt.Sprintf("127.0.0.1:%d", porttest.Free(t)) }
	temporal, modal, api, health := address(), address(), address(), address()
	_, temporalPort, err := net.SplitHostPort(temporal)
	require.NoError(t, err)

	here := strings.NewReplacer(
		c.Services["api"].Environment["OVERWINTER_DATABASE_URL"], postgrestest.EmptyURL(t),
		"temporal:7233", temporal, "0.0.0.0:8080", api,
		"127.0.0.1:8081", health, "127.0.0.1:9900", modal, "/data", dir,
	)
	prepare := func(ctx context.Context, name string) *exec.Cmd {
		s := c.Services[name]
		command := s.Command
		if len(command) == 0 {
			command = images[s.Build.Target].command
		}
		args := make([]string, len(command))
		for i, a := range command {
			args[i] = here.Replace(a)
		}
		cmd := exec.CommandContext(ctx, program(t, images[s.Build.Target].entrypoint[0]), args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
		for k, v := range s.Environment {
			cmd.Env = append(cmd.Env, k+"="+here.Replace(v))
		}
		return cmd
	}
	start := func(name string, extra ...string) {
		out := &safeBuffer{}
		cmd := prepare(context.Background(), name)
		cmd.Args = append(cmd.Args, extra...)
		cmd.Stdout, cmd.Stderr = out, out
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s:\n%s", name, out)
			}
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			require.NoError(t, cmd.Wait(), "%s did not end cleanly:\n%s", name, out)
		})
	}

	start("temporal", "--ip", "127.0.0.1", "--port", temporalPort, "--ui-port", fmt.Sprint(porttest.Free(t)))
	start("local-modal")
	out, err := prepare(t.Context(), "migrate").CombinedOutput()
	require.NoError(t, err, "%s", out)
	start("worker")
	start("api")
	for name, url := range map[string]string{"api": "http://" + api + "/readyz", "worker": "http://" + health + "/readyz"} {
		eventually(t, 60*time.Second, name+" is ready", func() error {
			if status, body, err := callWithKey(t.Context(), "GET", url, "", nil); err != nil || status != http.StatusOK {
				return fmt.Errorf("%d %s %w", status, body, err)
			}
			return nil
		})
	}

	sessions := "http://" + api + "/api/sessions"
	body := object{"agent": "demo", "prompt": object{"id": "first", "content": "hello from the container"}}
	for _, wrong := range []string{"", "another key"} {
		status, _, err := callWithKey(t.Context(), "POST", sessions, wrong, body)
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, status)
	}
	key := given["OVERWINTER_API_KEY"]
	status, raw, err := callWithKey(t.Context(), "POST", sessions, key, body)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", raw)
	var created struct{ ID string }
	require.NoError(t, json.Unmarshal(raw, &created))
	eventually(t, 60*time.Second, "the agent answers", func() error {
		_, prompt, err := callWithKey(t.Context(), "GET", sessions+"/"+created.ID+"/prompts/first", key, nil)
		if err != nil || !strings.Contains(string(prompt), `"completed"`) {
			return fmt.Errorf("%s %w", prompt, err)
		}
		return nil
	})
	_, blocks, err := callWithKey(t.Context(), "GET", sessions+"/"+created.ID+"/blocks", key, nil)
	require.NoError(t, err)
	require.Contains(t, string(blocks), "assistant_text")
	status, raw, err = callWithKey(t.Context(), "POST", sessions+"/"+created.ID+"/stop", key, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, status, "%s", raw)
}

func callWithKey(ctx context.Context, method, url, key string, body any) (int, []byte, error) {
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		payload = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, payload)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return response.StatusCode, raw, err
}

// readCompose parses the file as docker compose would with these variables.
func readCompose(t *testing.T, variables map[string]string) compose {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "docker-compose.yml"))
	require.NoError(t, err)
	decoder := yaml.NewDecoder(strings.NewReader(interpolate(t, string(raw), variables)))
	decoder.KnownFields(true)
	var c compose
	require.NoError(t, decoder.Decode(&c))
	return c
}

var reference = regexp.MustCompile(`\$\{(\w+)(:-|:\?)([^}]*)\}`)

// interpolate fills in ${NAME:-default} and ${NAME:?message}.
func interpolate(t *testing.T, text string, variables map[string]string) string {
	t.Helper()
	out := reference.ReplaceAllStringFunc(text, func(match string) string {
		parts := reference.FindStringSubmatch(match)
		value := variables[parts[1]]
		if parts[2] == ":?" {
			require.NotEmpty(t, value, "%s is required and not given", parts[1])
		}
		if value == "" && parts[2] == ":-" {
			value = parts[3]
		}
		return value
	})
	require.NotContains(t, out, "$", "a reference of a form that this test does not know")
	return out
}

// readDockerfile returns the stages by name.
func readDockerfile(t *testing.T) map[string]*image {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "Dockerfile"))
	require.NoError(t, err)
	images := map[string]*image{}
	var stage *image
	list := func(text string) (out []string) {
		require.NoError(t, json.Unmarshal([]byte(text), &out), "%s: not of the exec form", text)
		return out
	}
	for line := range strings.Lines(strings.ReplaceAll(string(raw), "\\\n", "")) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		words := strings.Fields(rest)
		switch instruction {
		case "", "#", "ARG", "WORKDIR", "EXPOSE":
		case "USER":
			stage.user = rest
		case "FROM":
			require.Len(t, words, 3, line)
			require.Equal(t, "AS", words[1])
			stage = &image{base: words[0]}
			images[words[2]] = stage
		case "RUN":
			if target, ok := strings.CutPrefix(rest, "make "); ok {
				makefile, err := os.ReadFile(filepath.Join("..", "Makefile"))
				require.NoError(t, err)
				require.Contains(t, string(makefile), "\n"+target+":")
			}
		case "COPY":
			if from, ok := strings.CutPrefix(words[0], "--from="); ok {
				require.Contains(t, images, from)
				stage.copied = append(stage.copied, words[1:len(words)-1]...)
				continue
			}
			for _, source := range words[:len(words)-1] {
				require.NotEqual(t, ".", source, "files are copied by name: a .env file must not reach a layer")
				_, err := os.Stat(filepath.Join("..", source))
				require.NoError(t, err, line)
			}
		case "ENTRYPOINT":
			stage.entrypoint = list(rest)
		case "CMD":
			stage.command = list(rest)
		case "VOLUME":
			stage.volumes = words
		default:
			t.Fatalf("an instruction that this test does not know: %s", line)
		}
	}
	return images
}

// requireCommand checks that a program has a command with the given flags.
func requireCommand(t *testing.T, name string, command []string) {
	t.Helper()
	var words []string
	for _, arg := range command {
		if strings.HasPrefix(arg, "-") {
			break
		}
		words = append(words, arg)
	}
	help := helpOf(t, name, words...)
	for _, arg := range command[len(words):] {
		if flag, _, _ := strings.Cut(arg, "="); strings.HasPrefix(flag, "-") {
			require.Regexp(t, `(^|\s)`+regexp.QuoteMeta(flag)+`(=|\s|$)`, help, "%s %s", name, strings.Join(words, " "))
		}
	}
}

func helpOf(t *testing.T, name string, command ...string) string {
	t.Helper()
	out, err := exec.Command(program(t, name), append(slices.Clone(command), "--help")...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, command, out)
	return string(out)
}

// programVariables returns the variables that overwinter documents.
func programVariables(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, command := range [][]string{{"api"}, {"worker"}, {"migrate", "up"}, {"local-modal"}, {"dev"}} {
		for _, match := range regexp.MustCompile(`\(\$(\w+)\)`).FindAllStringSubmatch(helpOf(t, "overwinter", command...), -1) {
			out[match[1]] = true
		}
	}
	require.Contains(t, out, "OVERWINTER_DATABASE_URL")
	return out
}

func flagValue(t *testing.T, command []string, flag string) string {
	t.Helper()
	i := slices.Index(command, flag)
	require.True(t, i >= 0 && i+1 < len(command), "%s has no %s", command, flag)
	return command[i+1]
}

func keys[M ~map[string]V, V any](m M) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

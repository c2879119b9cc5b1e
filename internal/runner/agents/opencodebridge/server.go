package opencodebridge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

const (
	startTimeout   = 60 * time.Second // for the server to start listening
	requestTimeout = 60 * time.Second // for a response of the server, except for a turn
	stopGrace      = 3 * time.Second  // for the server to exit gracefully
)

// user is the user name that the server requires with its password.
const user = "opencode"

// server is a running opencode serve. It listens on the loopback interface, which other processes
// may share, and requires a password.
type server struct {
	child    *bridge.Child
	base     string
	password string
	client   *http.Client
	timeout  time.Duration // for a response, except for a turn
	events   chan []byte   // data of its events; closed when their stream has ended
}

// modelsVariable names a file with the available models in the format of models.dev. It replaces
// OpenCode's built-in list.
const modelsVariable = "OPENCODE_MODELS_PATH"

// environment returns the environment of OpenCode's processes. It drops nearly all of OpenCode's
// own variables and sets ours.
func environment(config []byte, password string) []string {
	env := []string{}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if name != opencodeformat.SettingsVariable && !strings.HasPrefix(name, "OPENCODE_") || name == opencodeformat.SecretZen || name == modelsVariable {
			env = append(env, e)
		}
	}
	return append(env,
		"OPENCODE_CONFIG_CONTENT="+string(config),
		"OPENCODE_SERVER_PASSWORD="+password,
		"OPENCODE_DISABLE_AUTOUPDATE=1",
		"OPENCODE_DISABLE_MODELS_FETCH=1",
		"OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		"OPENCODE_DISABLE_SHARE=1",
		"OPENCODE_DISABLE_DEFAULT_PLUGINS=1", // the default plugins log people in to providers; the bridge uses keys
		"OPENCODE_DISABLE_EMBEDDED_WEB_UI=1",
	)
}

// startServer starts the server and follows its events. It copies the server's stderr to stderr.
func startServer(ctx context.Context, program string, config []byte, stderr io.Writer) (*server, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	s := &server{
		password: rand.Text(),
		timeout:  requestTimeout,
		client:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}},
		events:   make(chan []byte, 256), // some slack during our own requests
	}
	s.child, err = bridge.Start(bridge.Spec{
		Argv:   []string{program, "serve", "--hostname", "127.0.0.1", "--port", strconv.Itoa(port)},
		Env:    environment(config, s.password),
		Stderr: stderr,
	})
	if err != nil {
		return nil, err
	}
	listening := make(chan string, 1) // receives the first line that contains an address
	go func() {
		_ = bridge.ReadLines(s.child.Stdout, func(line []byte) {
			if _, address, ok := bytes.Cut(line, []byte("listening on ")); ok {
				select {
				case listening <- strings.TrimSpace(string(address)):
				default:
				}
				return
			}
			fmt.Fprintf(stderr, "%s\n", line)
		})
	}()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case s.base = <-listening:
	case <-s.child.Done():
		return nil, fmt.Errorf("OpenCode ended before it listened: %s", s.child.Ended())
	case <-timer.C:
		s.stop()
		return nil, errors.New("OpenCode does not begin to listen")
	case <-ctx.Done():
		s.stop()
		return nil, context.Cause(ctx)
	}
	if err := s.follow(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// freePort returns a port on which no process listens, because OpenCode does not choose one.
func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// dying is how long a server that rejects its clients may take to exit.
const dying = time.Second

// dies reports whether the server has exited, or is about to.
func (s *server) dies() bool {
	timer := time.NewTimer(dying)
	defer timer.Stop()
	select {
	case <-s.child.Done():
		return true
	case <-timer.C:
		return false
	}
}

// stop stops the server.
func (s *server) stop() {
	s.child.Signal(syscall.SIGTERM)
	s.child.Stop(stopGrace)
	s.client.CloseIdleConnections()
}

// follow starts to read the events of the server.
func (s *server) follow(ctx context.Context) error {
	r, err := s.request(ctx, http.MethodGet, "/event", nil)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(r) //nolint:bodyclose // closed by its reader
	if err != nil {
		return fmt.Errorf("follow the events of OpenCode: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return fmt.Errorf("follow the events of OpenCode: %s", resp.Status)
	}
	go func() {
		defer close(s.events)
		defer resp.Body.Close()
		readEvents(ctx, resp.Body, s.events)
	}()
	return nil
}

// readEvents sends the data of server-sent events until the stream ends.
func readEvents(ctx context.Context, body io.Reader, to chan<- []byte) {
	in := bufio.NewReaderSize(body, 64<<10)
	var data []byte
	for {
		line, err := in.ReadBytes('\n')
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimSpace(rest)...)
		}
		if len(bytes.TrimSpace(line)) == 0 && len(data) > 0 {
			select {
			case to <- data:
			case <-ctx.Done():
				return
			}
			data = nil
		}
		if err != nil {
			return
		}
	}
}

func (s *server) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		in = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, in)
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth(user, s.password)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// statusError is an unsuccessful response of the server.
type statusError struct {
	request string
	code    int
	body    string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: OpenCode answers %d: %s", e.request, e.code, e.body)
}

// call makes a request and returns the body of the response.
func (s *server) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	r, err := s.request(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, &statusError{request: method + " " + path, code: resp.StatusCode, body: opencodeformat.Bounded(string(data), 512)}
	}
	return data, nil
}

// quick is call for requests that are answered at once.
func (s *server) quick(ctx context.Context, method, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errors.New("it takes too long"))
	defer cancel()
	return s.call(ctx, method, path, body)
}

// route returns a path below a session.
func route(sessionID, rest string) string { return "/session/" + url.PathEscape(sessionID) + rest }

// createSession creates a session and returns its id.
func (s *server) createSession(ctx context.Context) (string, error) {
	data, err := s.quick(ctx, http.MethodPost, "/session", struct{}{})
	if err != nil {
		return "", err
	}
	var info opencodeformat.SessionInfo
	if err := json.Unmarshal(data, &info); err != nil || info.ID == "" {
		return "", fmt.Errorf("POST /session: OpenCode answers %s", opencodeformat.Bounded(string(data), 512))
	}
	return info.ID, nil
}

// messages returns the messages of a session.
func (s *server) messages(ctx context.Context, sessionID string) ([]opencodeformat.Exported, error) {
	data, err := s.quick(ctx, http.MethodGet, route(sessionID, "/message"), nil)
	if err != nil {
		return nil, err
	}
	var all []opencodeformat.Exported
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("messages of session %s: %w", sessionID, err)
	}
	return all, nil
}

// export returns a session in the format of OpenCode's own export command, marked as ours.
func (s *server) export(ctx context.Context, sessionID string) ([]byte, error) {
	info, err := s.quick(ctx, http.MethodGet, route(sessionID, ""), nil)
	if err != nil {
		return nil, err
	}
	messages, err := s.quick(ctx, http.MethodGet, route(sessionID, "/message"), nil)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(`{"overwinter":true,"info":`) // the mark is for Parse; OpenCode ignores it
	b.Write(bytes.TrimSpace(info))
	b.WriteString(`,"messages":`)
	b.Write(bytes.TrimSpace(messages))
	b.WriteString("}\n")
	return b.Bytes(), nil
}

// busy reports whether the agent is working on a session.
func (s *server) busy(ctx context.Context, sessionID string) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTimeout, errors.New("OpenCode does not say whether it works"))
	defer cancel()
	data, err := s.quick(ctx, http.MethodGet, "/session/status", nil)
	if err != nil {
		return false, err
	}
	var all map[string]struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return false, fmt.Errorf("GET /session/status: %w", err)
	}
	status, ok := all[sessionID]
	return ok && status.Type != "idle", nil
}

// importSession makes OpenCode import a session from an export.
func importSession(ctx context.Context, program, file string, config []byte, stderr io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("it takes too long"))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "import", file)
	cmd.Env = environment(config, rand.Text())
	cmd.Stdout, cmd.Stderr = stderr, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("import the session: %w", err)
	}
	return nil
}

// reply answers a question.
func (s *server) reply(ctx context.Context, kind, id, verb string, body json.RawMessage) error {
	if kind != opencodeformat.ReplyPermission && kind != opencodeformat.ReplyQuestion {
		return fmt.Errorf("there is no answer of kind %q", kind)
	}
	_, err := s.quick(ctx, http.MethodPost, "/"+kind+"/"+url.PathEscape(id)+verb, body)
	return err
}

// databaseFile returns the path of OpenCode's database.
func databaseFile() string {
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		data = filepath.Join(os.Getenv("HOME"), ".local/share")
	}
	return filepath.Join(data, opencodeformat.DatabaseName)
}

package session

// Profile is what an agent is given beside its own defaults. How each agent is given it is its
// adapter's affair; what an agent has no place for, its adapter says.
type Profile struct {
	// Instructions are added to what the agent is told at the start of every conversation.
	Instructions string `json:"instructions,omitempty"`
	// Skills, Subagents and Commands have names that are unique of their kind.
	Skills     []ProfileText      `json:"skills,omitempty"`
	Subagents  []ProfileText      `json:"subagents,omitempty"`
	Commands   []ProfileText      `json:"commands,omitempty"`
	MCPServers []ProfileMCPServer `json:"mcpServers,omitempty"`
	// Files are written into the workspace before the agent starts.
	Files []ProfileFile `json:"files,omitempty"`
	// Model is taken where the session's options name none.
	Model string `json:"model,omitempty"`
	// Environment is added to the agent's. It is no place for secrets.
	Environment map[string]string `json:"environment,omitempty"`
	Permissions Permissions       `json:"permissions,omitzero"`
}

// ProfileText is a skill, a subagent or a command.
type ProfileText struct {
	Name        string `json:"name"` // as ProfileName allows
	Description string `json:"description,omitempty"`
	Content     string `json:"content"` // Markdown, without front matter
}

// ProfileMCPServer is a server of the Model Context Protocol: a program in the sandbox where
// Command is set, else one that is reached by URL.
type ProfileMCPServer struct {
	Name        string            `json:"name"`
	Command     string            `json:"command,omitempty"`
	Args        []string          `json:"args,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	URL         string            `json:"url,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
}

// ProfileFile is a file of the workspace.
type ProfileFile struct {
	Path    string `json:"path"` // relative to the workspace
	Content string `json:"content"`
}

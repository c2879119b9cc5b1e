export { Block, Conversation, type BlockRenderer, type BlockRenderers, type ConversationProps } from "./conversation.js";
export { useBlocks, useConversations, useFiles, useQueue, useQuestions, useSession } from "./hooks.js";
export { PromptBox, type PromptBoxProps } from "./promptbox.js";
export { OverwinterProvider, useClient, useStore } from "./provider.js";
export { Question, Questions, type QuestionProps } from "./question.js";

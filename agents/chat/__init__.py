"""Conversations as tokens.

chat: messages to token ids and back; whether a chat template fits an environment
template: rendering of chat templates, and which of them preserve prefixes
families: the stock templates of the usual models, by hash
fitting: what an environment is asked for to suit a stock model
limits: how much work a template may do
encoder: text to token ids, where control tokens come only from the template
"""

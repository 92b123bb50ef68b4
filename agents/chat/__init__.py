"""Conversations as tokens.

chat: messages to token ids and back, where control tokens come only from the template; whether a template fits;
    the bytes of each token
template: chat templates, which of them preserve prefixes, and the stock ones of the usual models
serving: the template under which a trained model is served
rendering: what a template writes, and how much work it may do
"""
